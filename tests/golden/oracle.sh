#!/bin/sh
# Build real mmcv 1.7.2 in .oracle/ (once) and record the golden numbers with it.
#   tests/golden/oracle.sh                   all files
#   tests/golden/oracle.sh traces text_log   some of them
set -eu
cd "$(dirname "$0")/../.."

recipe="mmcv==1.7.2 torch==2.13.0 lightning==2.6.6 matplotlib tensorboard"
if [ "$(cat .oracle/recipe 2>/dev/null)" != "$recipe" ]; then
    rm -rf .oracle
    "${PYTHON:-python3}" -m venv .oracle
    pip=.oracle/bin/pip

    # mmcv's setup.py imports pkg_resources, so its wheel is built apart with an old setuptools;
    # beside torch, that pin would make pip replace torch by an older one.
    "${PYTHON:-python3}" -m venv .oracle/build
    .oracle/build/bin/pip install "setuptools<70" wheel
    MMCV_WITH_OPS=0 .oracle/build/bin/pip wheel --no-build-isolation --no-deps mmcv==1.7.2 -w .oracle/wheels

    $pip install torch==2.13.0
    $pip install lightning==2.6.6 torchmetrics pytest scikit-learn numpy addict pyyaml yapf \
        packaging pillow opencv-python-headless matplotlib tensorboard  # the last two: its sisters
    $pip install --no-deps .oracle/wheels/mmcv-1.7.2-*.whl
    rm -rf .oracle/build .oracle/wheels
    echo "$recipe" > .oracle/recipe
fi

# On a machine with a GPU, mmcv would add a memory column to its log lines.
CUDA_VISIBLE_DEVICES="" .oracle/bin/python -W ignore tests/golden/record.py "$@"
