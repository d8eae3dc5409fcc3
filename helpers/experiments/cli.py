"""The command line: `l2g VERB`, or `python -m helpers VERB`.

Exit codes: 0 if all went well; 1 if a run is left untrained, stale or damaged, or if data or README differ from what
they should be; 2 if the command itself makes no sense or cannot be carried out; 130 if it was interrupted.
"""

import argparse
import sys

# Verbs import what they need when they are called: PyTorch alone takes seconds, and --help should not.


def main(argv=None):
    """Carry out a command line, sys.argv by default; returns the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        return args.verb(args) or 0
    except (ValueError, ImportError, OSError) as error:
        print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{parser.prog}: stopped; the same command goes on where this one was cut off", file=sys.stderr)
        return 130


def _parser():
    parser = argparse.ArgumentParser(prog="l2g", description="Train the networks, and renew what derives from them.")
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    def add(name, verb, text):
        sub = verbs.add_parser(name, help=text, description=text)
        sub.set_defaults(verb=verb)
        return sub

    on_runs = [
        add("list", list_runs, "names of all runs"),
        add("status", show_status, "what is trained, stale or missing, and what training costs"),
        add("train", train_runs, "train what is missing"),
    ]
    for sub in on_runs:
        sub.add_argument("pattern", nargs="?", default="*", help="shell pattern on the names, such as 'l2g-ba*'")
    sub.add_argument("--jobs", type=int, default=1, help="processes to use")
    sub.add_argument("--scheduler", help="address of a Dask scheduler to send the runs to")
    sub.add_argument("--device", default="cpu", help="where to train, such as cuda")
    sub.add_argument("--retrain", action="store_true", help="also train what is trained, stale or damaged")
    data = add(
        "data",
        compare_data,
        "compare the shipped statistics of data that are not ours with the raw data",
    )
    data.add_argument("--download", action="store_true", help="download raw data that are not there")
    data.add_argument("--write", action="store_true", help="replace what differs")
    exact = add(
        "exact", compare_exact, "compute the exact edge probabilities of small graphs again, and compare: minutes"
    )
    exact.add_argument("laws", nargs="*", metavar="LAW", help="such as exact5; all of them by default")
    exact.add_argument("--write", action="store_true", help="replace what differs")
    readme = add("readme", renew_readme, "renew the tables of README.md from data/results")
    readme.add_argument("--check", action="store_true", help="only say whether they are up to date")
    measure = add("measure", measure_times, "measure the times and the memory that a table shows; let nothing else run")
    measure.add_argument("--million", action="store_true", help="also graphs of up to a million nodes: minutes, 2 GB")
    return parser


def list_runs(args):
    from .runs import select

    for run in select(args.pattern):
        print(run.name)


def show_status(args):
    from .runs import expected_seconds, select, state_of

    total = 0.0
    for run in select(args.pattern):
        state = state_of(run)
        seconds = expected_seconds(run)
        if state != "trained":
            total += seconds
        print(f"{state:8}  {seconds:7.0f} s  {run.name}")
    print(f"{total / 3600:.2f} hours on one core to train what is not trained")


def train_runs(args):
    from tqdm import tqdm

    from .runs import select, state_of
    from .sweep import SweepError, train

    if args.scheduler is None:
        _check_device(args.device)
    states = {run: state_of(run) for run in select(args.pattern)}
    todo = [run for run, state in states.items() if args.retrain or state in ("missing", "started")]
    left = [run.name for run, state in states.items() if state == "stale" and not args.retrain]
    print(f"{len(todo)} of {len(states)} runs to train")
    failures = {name: "stale or damaged, and left alone: --retrain replaces it" for name in left}
    names = train(todo, n_jobs=args.jobs, scheduler=args.scheduler, device=args.device, retrain=args.retrain)
    try:
        for name in (bar := tqdm(names, "runs", len(todo))):
            bar.set_postfix_str(name)
    except SweepError as error:
        failures |= error.failures
    for name, reason in failures.items():
        print(f"{name}: {reason}", file=sys.stderr)
    return 1 if failures else 0


def _check_device(device):
    import torch

    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device={device!r} cannot be used here ({str(error).splitlines()[0]})") from None


def compare_data(args):
    from ..real.datasets import compare
    from ..real.networks import SHIPPED
    from .authors import ERRORS
    from .authors import compare as compare_authors
    from .benchmarks import LASSO_SCORES, compare_lasso, compare_networks

    agree, differ = compare(download=args.download, write=args.write)
    others = {ERRORS: compare_authors, SHIPPED: compare_networks, LASSO_SCORES: compare_lasso}
    for name, compare_one in others.items():
        same = compare_one(write=args.write)
        if same is None:
            print(f"{name} is left out: the raw files behind it are not there")
        else:
            (agree if same else differ).append(name)
    print(f"{len(agree)} of {len(agree) + len(differ)} files in data/real agree with the raw data")
    return _tell_what_differs(differ, args.write)


def _tell_what_differs(differ, written):
    """What was replaced or should be; the exit code."""
    if differ and written:
        print(f"replaced: {', '.join(differ)}")
    elif differ:
        print(f"these differ, --write replaces them: {', '.join(differ)}", file=sys.stderr)
        return 1
    return 0


def compare_exact(args):
    from ..beyond.posterior import LAWS
    from .exactness import WEIGHTS, compare, compare_weights

    possible = [*LAWS, WEIGHTS]
    unknown = [law for law in args.laws if law not in possible]
    if unknown:
        raise ValueError(f"law={unknown[0]!r}: choose among {', '.join(possible)}")
    chosen = args.laws or possible
    differ = compare([law for law in chosen if law in LAWS], write=args.write)
    if WEIGHTS in chosen and not compare_weights(write=args.write):
        differ.append(WEIGHTS)
    print(f"{len(chosen) - len(differ)} of {len(chosen)} exact results agree with what was computed")
    return _tell_what_differs(differ, args.write)


def renew_readme(args):
    from .readme import main as renew

    return renew(check=args.check)


def measure_times(args):
    from .measure import main as measure

    return measure(million=args.million)
