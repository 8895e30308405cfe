"""Weights & Biases: a result as a run with a summary and an artifact."""

import wandb

from traceparity.verify.trackers import RESULT, Tracked


def log(tracked: Tracked, project: str) -> None:
    """Log a result.

    Args:
        tracked: The result.
        project: The project; empty for that of the environment, or ``traceparity``.
    """
    settings = wandb.Settings(silent=True, console="off")
    # The environment may name a project of its own, and the run that this one is about.
    name = project or wandb.Settings().project or "traceparity"
    run = wandb.init(project=name, job_type=tracked.command, settings=settings)
    for key, value in {**tracked.texts, **tracked.counts}.items():
        run.summary[f"{tracked.command}/{key}"] = value
    artifact = wandb.Artifact(f"{tracked.command}-result", type="traceparity-result")
    with artifact.new_file(RESULT, encoding="utf-8") as stream:
        stream.write(tracked.result)
    run.log_artifact(artifact)
    run.finish(exit_code=0)
