"""`primal generate`, from a text to a text in two commands."""


def test_a_text_goes_on(primal, text_run):
    done = primal("generate", text_run, "one two", "--tokens", 2, "--temperature", 0)
    assert done.code == 0, done.err
    assert done.out == "one two three four\n"
    refused = primal("generate", text_run, "", "--tokens", 2)
    assert refused.code == 2
    assert "the text is empty" in refused.err


def test_of_another_run_it_says_so(primal, trained):
    done = primal("generate", trained, "one")
    assert done.code != 0
    assert "expected one like lm/text" in done.err
