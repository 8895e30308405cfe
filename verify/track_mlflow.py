"""MLflow: a result as a run with tags, metrics and an artifact."""

import os

import mlflow

from traceparity.verify.trackers import RESULT, Tracked

_LONGEST = 5000
"""Characters of a tag; a server refuses longer ones."""


def log(tracked: Tracked, experiment: str) -> None:
    """Log a result.

    Args:
        tracked: The result.
        experiment: The experiment; empty for that of the environment, or ``traceparity``.
    """
    environment = ("MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID", "MLFLOW_RUN_ID")
    if experiment or not any(os.environ.get(name) for name in environment):
        mlflow.set_experiment(experiment or "traceparity")
    with mlflow.start_run(run_name=tracked.command):
        tags = tracked.texts.items()
        mlflow.set_tags({f"{tracked.command}.{key}": said[:_LONGEST] for key, said in tags})
        mlflow.log_metrics({f"{tracked.command}.{key}": n for key, n in tracked.counts.items()})
        mlflow.log_text(tracked.result, f"{tracked.command}/{RESULT}")
