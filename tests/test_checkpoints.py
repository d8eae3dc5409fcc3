import json
from hashlib import sha256

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from toys import CONFIGURATION, Toy, assert_same_weights, data, fit, stored

from helpers import paths
from helpers.engine import checkpoints
from helpers.engine.checkpoints import CheckpointError


def test_checkpoint_holds_all_that_a_reader_may_ask(trained):
    model, folder = trained
    _, record = stored(folder)
    assert record["name"] == "toy"
    assert record["configuration"] == CONFIGURATION
    assert record["n_parameters"] == 10 + 110
    assert (record["diverged"], record["test"]) == (0, {})
    assert {len(values) for values in record["history"].values()} == {4}
    assert record["history"].keys() == {"loss", "val_gmse", "seconds"}
    assert record["seconds"] == round(sum(record["history"]["seconds"]), 2)
    assert record["seconds_per_epoch"] == round(sum(record["history"]["seconds"]) / 4, 4)
    assert record["versions"].keys() == {*checkpoints.LIBRARIES, "python"}
    assert record["versions"]["torch"] == torch.__version__
    assert record == checkpoints.read_record(folder / "toy", CONFIGURATION)
    assert sorted(path.name for path in folder.iterdir()) == ["toy.json", "toy.safetensors"]
    assert checkpoints.state_of(folder / "toy", CONFIGURATION) == "trained"
    assert not model.training
    lines = (folder / "toy.json").read_text().splitlines()
    assert {f'  "{key}": {json.dumps(values)}' for key, values in record["history"].items()} < {
        line.rstrip(",") for line in lines
    }  # a curve is a line


def test_the_model_has_exactly_the_stored_weights(trained):
    """Half precision where the model asks for it, in the file and in the model itself; single precision elsewhere."""
    model, folder = trained
    weights, _ = stored(folder)
    assert {name: t.dtype for name, t in weights.items()} == {
        "theta": torch.float32,
        "map.weight": torch.float16,
        "map.bias": torch.float16,
    }
    assert all(p.dtype == torch.float32 for p in model.parameters())
    assert_same_weights({name: t.float() for name, t in weights.items()}, model.state_dict())
    assert not torch.equal(weights["theta"].half().float(), weights["theta"])  # theta has digits that would be lost


def test_a_weight_beyond_half_precision_stays_in_single(tmp_path):
    model = Toy()
    model.map.weight.data[0, 0] = 1e5
    history = [{"loss": 1.0, "val_gmse": 1.0, "seconds": 1.0}]
    checkpoints.save(tmp_path / "toy", model, history, CONFIGURATION)
    weights, _ = stored(tmp_path)
    assert weights["map.weight"].dtype == torch.float32
    assert weights["map.weight"][0, 0] == 1e5
    assert weights["map.bias"].dtype == torch.float16


def test_a_loaded_model_is_the_trained_one(trained):
    model, folder = trained
    observations, _ = data("test", 5, 0)
    loaded = checkpoints.load(folder / "toy", Toy(), CONFIGURATION)
    assert not loaded.training
    assert torch.equal(loaded.predict(observations), model.predict(observations))
    again = fit(folder, source=None)  # loaded, not trained: there are no data
    assert_same_weights(again.state_dict(), model.state_dict())


def test_a_model_is_loaded_to_its_device(trained):
    _, folder = trained
    assert checkpoints.load(folder / "toy", Toy(), device="meta").theta.device.type == "meta"
    assert fit(folder, device="meta").theta.device.type == "meta"


def test_a_kill_between_weights_and_sidecar_loses_nothing(trained, tmp_path, monkeypatch):
    write = paths.write_atomically

    def dies_at_the_sidecar(path, content):
        if str(path).endswith(".json"):
            raise KeyboardInterrupt
        write(path, content)

    monkeypatch.setattr(paths, "write_atomically", dies_at_the_sidecar)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path)
    monkeypatch.undo()
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "started"
    fit(tmp_path)
    assert_same_weights(stored(tmp_path)[0], stored(trained[1])[0])


def test_a_missing_checkpoint_is_said(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"toy\.safetensors is missing: train it first"):
        checkpoints.load(tmp_path / "toy", Toy())
    assert checkpoints.state_of(tmp_path / "toy") == "missing"


@pytest.mark.parametrize("which", [0, 1])
def test_half_a_checkpoint_is_refused_with_advice_that_works(copied, tmp_path, which):
    copied[which].unlink()
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "stale"
    with pytest.raises(CheckpointError, match=rf"{copied[which].name} is missing.*retrain=True"):
        checkpoints.load(tmp_path / "toy", Toy())
    with pytest.raises(CheckpointError, match="retrain=True"):
        fit(tmp_path)
    fit(tmp_path, retrain=True)
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "trained"


@pytest.mark.parametrize("damage", [lambda b: b[:-7], lambda b: b[:100] + b"x" + b[101:], lambda b: b""])
def test_damaged_weights_are_refused(copied, tmp_path, damage):
    copied[0].write_bytes(damage(copied[0].read_bytes()))
    with pytest.raises(CheckpointError, match="truncated, corrupt"):
        checkpoints.load(tmp_path / "toy", Toy(), CONFIGURATION)
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "stale"
    with pytest.raises(CheckpointError, match="retrain=True"):
        fit(tmp_path)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b"\xff\xfe", b"null", b'"text"', b"3"]
    + [
        json.dumps(
            {"configuration": {}, "weights_sha256": "", "diverged": 0, "history": {}, "seconds": 1} | change
        ).encode()
        for change in (
            {"configuration": []},
            {"weights_sha256": 1},
            {"diverged": None},
            {"history": []},
            {"seconds": "1"},
            {"seconds": -1},
        )
    ],
)
def test_damaged_sidecars_are_refused(copied, tmp_path, content):
    copied[1].write_bytes(content)
    for read in (checkpoints.read_sidecar, checkpoints.read_record):
        with pytest.raises(CheckpointError, match="not a readable sidecar"):
            read(tmp_path / "toy")
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "stale"


def test_a_checkpoint_of_another_configuration_is_refused(copied, tmp_path):
    other = {"lr": 0.1, "arguments": {"width": [3, 5], "new": None}, "empty": {}}
    text = (
        r"arguments\.new: nothing there, None here, arguments\.width: \[3, 4\] there, \[3, 5\] here, "
        r"empty: nothing there, \{\} here, lr: 0\.05 there, 0\.1 here"
    )
    with pytest.raises(CheckpointError, match=text):
        checkpoints.load(tmp_path / "toy", Toy(), other)
    assert checkpoints.state_of(tmp_path / "toy", other) == "stale"
    assert checkpoints.state_of(tmp_path / "toy") == "trained"  # whatever it was trained with
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION | {"arguments": {"width": (3, 4)}}) == "trained"
    fit(tmp_path, configuration=other, retrain=True)
    assert checkpoints.state_of(tmp_path / "toy", other) == "trained"


def test_foreign_weights_with_a_matching_sidecar_are_refused(copied, tmp_path):
    weights, sidecar, _ = copied
    save_file({"theta": torch.zeros(3)}, weights)
    record = json.loads(sidecar.read_text())
    record["weights_sha256"] = sha256(weights.read_bytes()).hexdigest()
    sidecar.write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match="does not fit Toy"):
        checkpoints.load(tmp_path / "toy", Toy(), CONFIGURATION)
    weights.write_bytes(b"no tensors")
    record["weights_sha256"] = sha256(b"no tensors").hexdigest()
    sidecar.write_text(json.dumps(record))
    with pytest.raises(CheckpointError, match="does not fit Toy"):
        checkpoints.load(tmp_path / "toy", Toy(), CONFIGURATION)


def assert_resume_file_refused(folder, resume, match):
    """Refused and left as it is; a training from the start may replace it."""
    content = resume.read_bytes()
    assert checkpoints.state_of(folder / "toy", CONFIGURATION) == "started"
    with pytest.raises(CheckpointError, match=match):
        fit(folder)
    assert resume.read_bytes() == content
    fit(folder, retrain=True)
    assert len(stored(folder)[1]["history"]["loss"]) == 4


@pytest.mark.parametrize("place", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
def test_a_flipped_bit_in_a_resume_file_is_noticed(cut_off, tmp_path, place):
    content = bytearray(cut_off.read_bytes())
    content[int(place * (len(content) - 1))] ^= 4
    cut_off.write_bytes(content)
    assert_resume_file_refused(tmp_path, cut_off, "toy.resume.safetensors is truncated or corrupt.*delete it")


@pytest.mark.parametrize("content", [b"", b"0" * 200])
def test_a_file_that_is_no_resume_file_is_refused(tmp_path, content):
    resume = checkpoints.files(tmp_path / "toy")[2]
    resume.write_bytes(content)
    assert_resume_file_refused(tmp_path, resume, "truncated or corrupt.*delete it")


def rewrite(resume, change, signed):
    """Change a resume file's metadata; `signed` gives it a digest to match."""
    with safe_open(resume, "pt") as file:
        metadata, tensors = file.metadata(), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    change(metadata, tensors)
    if signed:
        metadata.pop("sha256")
        metadata["sha256"] = checkpoints._digest(tensors, metadata)
    save_file(tensors, resume, metadata)


@pytest.mark.parametrize("name", ["configuration", "history", "sha256", None])
def test_a_resume_file_without_its_metadata_is_refused(cut_off, tmp_path, name):
    if name is None:
        save_file(load_file(cut_off), cut_off)
    else:
        rewrite(cut_off, lambda metadata, _: metadata.pop(name), signed=name != "sha256")
    assert_resume_file_refused(tmp_path, cut_off, "truncated or corrupt.*delete it")


def test_every_part_of_a_resume_file_is_under_its_digest():
    tensors, metadata = {"a": torch.zeros(2), "b": torch.ones(2)}, {"history": "[]"}
    others = [
        ({"a": torch.zeros(2), "b": torch.tensor([1.0, 2.0])}, metadata),
        ({"a": torch.ones(2), "b": torch.zeros(2)}, metadata),
        ({"a": torch.zeros(2), "c": torch.ones(2)}, metadata),
        ({"a": torch.zeros(1, 2), "b": torch.ones(2)}, metadata),
        ({"a": torch.zeros(2, dtype=torch.int32), "b": torch.ones(2)}, metadata),
        (tensors, {"history": "[1]"}),
    ]
    digests = {checkpoints._digest(*pair) for pair in [(tensors, metadata), *others]}
    assert len(digests) == 1 + len(others)
    assert checkpoints._digest(dict(reversed(tensors.items())), metadata) == checkpoints._digest(tensors, metadata)


def test_a_resume_file_of_another_configuration_is_refused(cut_off, tmp_path):
    def change(metadata, _):
        metadata["configuration"] = json.dumps(CONFIGURATION | {"lr": 0.1})

    rewrite(cut_off, change, signed=True)
    assert_resume_file_refused(tmp_path, cut_off, "belongs to another configuration: delete it")


def test_a_resume_file_of_another_model_is_refused(cut_off, tmp_path):
    rewrite(cut_off, lambda _, tensors: tensors.pop("model.theta"), signed=True)
    with pytest.raises(CheckpointError, match=r"does not fit Toy .*: delete it"):
        fit(tmp_path)


def test_results_without_weights(tmp_path):
    """The sidecar says what the model is worth, with weights as they would be stored; an old weights file goes."""

    def evaluate(model):
        assert not model.training
        assert torch.equal(model.map.weight, model.map.weight.half().float())
        return {"gmse": [float(model.theta.detach().sum())]}

    fit(tmp_path, evaluate=evaluate)
    weights, sidecar, _ = checkpoints.files(tmp_path / "toy")
    total = checkpoints.load(tmp_path / "toy", Toy()).theta.sum().item()
    assert checkpoints.read_record(tmp_path / "toy")["test"] == {"gmse": [total]}
    fit(tmp_path, evaluate=evaluate, keep_weights=False, retrain=True)
    assert sidecar.exists()
    assert not weights.exists()
    record = checkpoints.read_record(tmp_path / "toy", CONFIGURATION)
    assert (record["weights_sha256"], record["test"]) == (None, {"gmse": [total]})
    assert checkpoints.state_of(tmp_path / "toy", CONFIGURATION) == "trained"
    with pytest.raises(CheckpointError, match=r"weights were not kept: train it again with retrain=True"):
        checkpoints.load(tmp_path / "toy", Toy(), CONFIGURATION)
