"""The KSVD term in a Trainer and in a plain loop."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

import primal_attention as pa
from primal_attention.convert import KSVDLossMixin, convert_

X = torch.randn(2, 5, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


class Stub:
    """Computes a loss with the signature of transformers' Trainer."""

    model_accepts_loss_kwargs = False
    compute_loss_func = None
    current_gradient_accumulation_steps = 4

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        outputs = SimpleNamespace(out=model(inputs["x"]))
        loss = outputs.out.square().mean()
        return (loss, outputs) if return_outputs else loss


class Trainer(KSVDLossMixin, Stub):
    eta = 0.5


@pytest.fixture
def model(encoder):
    for module in encoder.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return convert_(encoder, layers="all", rank=3, dropout=0.0).train()


def test_the_term_is_added_in_training_only(model):
    loss, outputs = Trainer().compute_loss(model, {"x": X}, return_outputs=True)
    expected = model(X).square().mean() + 0.5 * pa.ksvd_loss(model, growth="log")
    torch.testing.assert_close(loss, expected)
    assert outputs.out.shape == X.shape
    model.eval()
    plain = Trainer().compute_loss(model, {"x": X})
    torch.testing.assert_close(plain, model(X).square().mean())


@pytest.mark.parametrize(
    ("feature_map", "given", "growth"),
    [("cosine", None, "square"), ("elu", None, "log"), ("elu", "square", "square")],
)
def test_the_loss_of_positive_features_is_its_logarithm(encoder, feature_map, given, growth):
    model = convert_(encoder, layers="all", rank=3, dropout=0.0, feature_map=feature_map).eval()
    for layer in model.modules():
        if isinstance(layer, pa.PrimalAttention):
            layer.train()
    trainer = Trainer()
    trainer.growth = given
    model.training = True  # no other dropout: the same forward twice
    loss = trainer.compute_loss(model, {"x": X})
    expected = model(X).square().mean() + 0.5 * pa.ksvd_loss(model, growth=growth)
    torch.testing.assert_close(loss, expected)


def test_eta_zero_and_the_record(model):
    trainer = Trainer()
    trainer.eta = 0.0
    torch.testing.assert_close(trainer.compute_loss(model, {"x": X}), model(X).square().mean())
    assert trainer.last_ksvd_loss is None
    trainer.eta = 1.0
    trainer.compute_loss(model, {"x": X})
    assert trainer.last_ksvd_loss > 0


@pytest.mark.parametrize(
    ("facts", "items", "share"),
    [
        ({}, None, 1.0),  # the Trainer will divide by 4 itself
        ({}, 10, 1.0),
        ({"model_accepts_loss_kwargs": True}, 10, 0.25),  # divided by the number of items already
        ({"compute_loss_func": print}, None, 0.25),
        ({"loss_is_scaled_for_ga": True}, None, 0.25),
        ({"loss_is_scaled_for_ga": False, "model_accepts_loss_kwargs": True}, 10, 1.0),
    ],
)
def test_gradient_accumulation(model, facts, items, share):
    trainer = Trainer()
    vars(trainer).update(facts)
    loss = trainer.compute_loss(model, {"x": X}, num_items_in_batch=items)
    expected = model(X).square().mean() + 0.5 * share * pa.ksvd_loss(model, growth="log")
    torch.testing.assert_close(loss, expected)


def test_a_plain_loop_learns(model):
    torch.manual_seed(0)
    target = torch.randn_like(X)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(15):
        loss = (model(X) - target).square().mean() + 0.1 * pa.ksvd_loss(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_the_real_trainer(hugging_face, tmp_path):
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class RealTrainer(KSVDLossMixin, transformers.Trainer):
        eta = 0.1

    model, batch, *_ = hugging_face("gpt2")
    convert_(model.float(), rank=3)
    rows = [{"input_ids": ids, "labels": ids} for ids in batch["input_ids"]]
    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=2, gradient_accumulation_steps=2, per_device_train_batch_size=1,
        report_to=[], save_strategy="no", use_cpu=True,
    )  # fmt: skip
    trainer = RealTrainer(model=model, args=arguments, train_dataset=rows)
    trainer.train()
    assert trainer.last_ksvd_loss is not None
