"""Settings of the whole test run."""

from __future__ import annotations

import os

# before any of them is imported: no test may look for a server or an account, nor phone home
os.environ.update(
    WANDB_MODE="offline",
    WANDB_SILENT="true",
    MLFLOW_DISABLE_TELEMETRY="true",
    NEPTUNE_MODE="offline",
    DVC_NO_ANALYTICS="1",
    MPLBACKEND="Agg",
)
# what the golden numbers were recorded with; and threads that wait for each other cost time
os.environ.setdefault("OMP_NUM_THREADS", "1")
# the same results on every machine; tests that need a GPU run with CUDA_VISIBLE_DEVICES=0 given
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
