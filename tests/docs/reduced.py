"""How the commands of the documentation become small enough for a test, and nothing else:

- FORCED: options that a command gets, in place of what the page says about them; a sweep has one
  epoch of two steps, and what shows published runs is small as it is.
- WORDS: lists that are shortened, and the device that is not here.
- STANDS_FOR: what the words in capitals, and names of one's own runs, stand for.
- NOT_RUN: commands that are only parsed, each with its reason.
"""

import re
import shlex

TRAINING = {"--epochs": "1", "--epoch-steps": "2", "--batch-size": "4", "--seeds": "0,1"}
FORCED = {
    "train": TRAINING | {"--devices": "1"},
    "bench": {"--lengths": "16,32", "--repeats": "1", "--cell-budget": "2"},
    "learn": {"--length": "64", "--seconds": "0.2", "--seeds": "0", "--queries": "2"},
    "reproduce": {"--quick": None, "--seeds": "0", "--budget": "20s"},
    "sweep": {"--search": "2", "--seeds": "0", "--workers": "1"},
    "calibrate": {"--resamples": "20"},
    "adapt": {"--steps": "4", "--every": "1", "--batch-size": "4", "--layerwise": "2"},
    "convert": {"--distill": "2"},
    "generate": {"--tokens": "5"},
    "spectrum": {"--inputs": "2"},
    "cost": {"--lengths": "32,64,128"},
    "data generate listops": {"--train": "4", "--validation": "2", "--test": "2"},
    "data generate pathfinder": {"--pictures": "10"},
    "data collect": {"--episodes": "2"},
}
ALWAYS = {"train", "learn", "reproduce", "adapt", "bench", "data generate listops", "calibrate",
          "data generate pathfinder", "data collect"}  # fmt: skip
WHEN = {  # forced only where the page has them
    "--seeds", "--devices", "--lengths", "--search", "--workers", "--distill", "--tokens",
    "--inputs", "--queries",
}  # fmt: skip
WORDS = {"cuda": "cpu", "rank=10:60": "rank=2:4", "rank=20,30,40": "rank=2,4",
         "rank=4,8,16": "rank=2,4", "eta=0,0.1,0.2,0.5": "eta=0.1", "eta=0,0.1": "eta=0.1",
         "rank=32,64,96": "rank=2,4"}  # fmt: skip

STANDS_FOR = {
    "RUN": "runs/primal", "RUN...": "runs/primal", "runs/FOLDER": "runs/primal",
    "runs/EVENTS": "runs/events", "runs/TEXT": "runs/text", "SOFTMAX": "runs/softmax",
    "PRIMAL-TRANS": "runs/mixed", "PRIMALFORMER": "runs/primal", "MODEL": "models/classifier",
    "SAVED": "saved", "FOLDER": "data", "DATA": "data", "POLICIES": "policies",
    "NAME": "performer", "NEW": "new.csv", "FILE": "plain.csv", "COLUMN": "out",
    "TASK": "uea/BasicMotions", "YOUR_WIDTH": "16",
    "rxnfp/models/transformers/bert_pretrained": "models/bert", "inputs.npz": "texts.npz",
}  # fmt: skip
OWN = {"predict": "runs/sensors", "export": "runs/sensors", "serve": "runs/sensors",
       "generate": "runs/text"}  # fmt: skip

NOT_RUN = {
    "needs a Ray cluster of several machines": "--cluster",
    "needs two machines with four devices each": "--nodes 2",
    "fetches 160 MB": "data get cifar10",
    "days on eight GPUs": "images/folder --recipe deit",
}
# in backticks, the name of a command or of a part of it, not a line to type
NAMES = {
    "bench lra", "data collect", "data collect hopper-medium-replay", "train table/csv",
    "train TASK", "train own/values --data ...", "train ... --attention softmax",
    "train ... --track transport", "train --uncertainty readout", "predict RUN NEW",
    "train own/waves --attention decay", "export --format onnx",
}  # fmt: skip


def reason(words: list[str]) -> str | None:
    """Why a command is not run."""
    line = shlex.join(words)
    return next((why for why, part in NOT_RUN.items() if part in line), None)


def name(words: list[str]) -> str:
    """The command without its arguments: "train", "data generate listops"."""
    known = (" ".join(words[:n]) for n in (3, 2, 1))
    return next((one for one in known if one in FORCED), words[0])


def reduced(words: list[str]) -> list[str]:
    """The command of a page, as the test runs it."""
    command = name(words)
    own = OWN if "photos/" not in words else OWN | {"predict": "runs/pictures"}
    found, runs = [], 0
    for before, word in zip(["", *words], words, strict=False):
        if word == "RUN" and runs:
            word = "runs/softmax"  # another one
        elif word == "RUN":
            word, runs = own.get(words[0], "runs/primal"), 1
        elif word == "FOLDER" and before == "--out":
            word = "out"
        word = STANDS_FOR.get(word, WORDS.get(word, word))
        found.append(re.sub(r"^/shared/", "shared/", word))
    if command == "sweep":
        found = [word for word in found if not word.startswith("epochs=")]
        found += ["epochs=1", "epoch_steps=2"]
    for option, value in FORCED.get(command, {}).items():
        if option in found:
            if value is not None:
                found[found.index(option) + 1] = value
        elif command in ALWAYS and option not in WHEN and "--published" not in words:
            found += [option] if value is None else [option, value]
    return found
