#!/bin/sh
# Build .bench/ (once): what the benches compare with. It sees all that .oracle/ has, real mmcv
# among it, and leaves that one as it is.
set -eu
cd "$(dirname "$0")/.."

recipe="mmengine==0.10.7 pytorch-ignite==0.5.5 ema-pytorch==0.8.3 timm==1.0.31 fvcore==0.1.5.post20221221 mmcls==0.25.0"
[ "$(cat .bench/recipe 2>/dev/null)" != "$recipe" ] || exit 0
rm -rf .bench
site='import sysconfig; print(sysconfig.get_path("purelib"))'
.oracle/bin/python -m venv .bench
.oracle/bin/python -c "$site" > "$(.bench/bin/python -c "$site")/oracle.pth"
.bench/bin/pip install rich matplotlib termcolor iopath yacs  # the last three are fvcore's
# the peers without what they depend on: each is one class here
.bench/bin/pip install --no-deps $recipe
echo "$recipe" > .bench/recipe
