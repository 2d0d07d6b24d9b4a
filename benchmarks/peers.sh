#!/bin/sh
# What the benches and the tests of tests/peers compare with.
#   benchmarks/peers.sh            .bench/, once: it sees all that .oracle/ has, real mmcv among it,
#                                  and leaves that one as it is
#   benchmarks/peers.sh libraries  .bench/libraries/, once: the libraries of
#                                  docs/guides/inside_libraries.md, 3 GB
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" = libraries ]; then
    recipe="pytorch-tabular==1.2.0 chemprop==2.3.1 neuralforecast==3.3.0 darts==0.48.1 scvi-tools==1.4.2
        pytorch-forecasting==1.5.0 gluonts[torch]==0.17.0 deeptab==2.1.0 anomalib==2.7.0
        ray[train]==2.60.0 timm==1.0.31 optuna==5.0.0 lightly==1.6.0 torch-geometric==2.8.1
        segmentation-models-pytorch==0.6.0 finetuning-scheduler==2.14.1"
    into=.bench/libraries
    [ "$(cat $into/recipe 2>/dev/null)" != "$recipe" ] || exit 0
    rm -rf $into
    .oracle/bin/python -m venv $into
    # what they agree on
    printf '%s\n' torch==2.13.0 lightning==2.6.6 pytorch-lightning==2.6.6 torchmetrics==1.8.2 \
        numpy==2.4.6 pandas==2.3.3 > $into/constraints.txt
    $into/bin/pip install torch==2.13.0
    $into/bin/pip install -c $into/constraints.txt lightning
    for library in $recipe; do
        $into/bin/pip install -c $into/constraints.txt "$library" \
            || echo "$library cannot be installed: its test is skipped"
    done
    echo "$recipe" > $into/recipe
    exit 0
fi

recipe="mmengine==0.10.7 pytorch-ignite==0.5.5 ema-pytorch==0.8.3 timm==1.0.31 fvcore==0.1.5.post20221221 mmcls==0.25.0
    pytorch-optimizer==4.1.0 schedulefree==1.4.1"
transformers=transformers==5.24.0
[ "$(cat .bench/recipe 2>/dev/null)" != "$recipe $transformers" ] || exit 0
rm -rf .bench
site='import sysconfig; print(sysconfig.get_path("purelib"))'
.oracle/bin/python -m venv .bench
.oracle/bin/python -c "$site" > "$(.bench/bin/python -c "$site")/oracle.pth"
.bench/bin/pip install rich matplotlib $transformers termcolor iopath yacs  # the last three are fvcore's
# the peers without what they depend on: each is one class here
.bench/bin/pip install --no-deps $recipe
echo "$recipe $transformers" > .bench/recipe
