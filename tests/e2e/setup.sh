#!/usr/bin/env bash
# Installs a real trainer into .e2e/: Debian's CPU build of torch with Ultralytics on top (about 1.3 GB). A second call does nothing.
#
# Debian's torch belongs to Debian's own Python, so the environment is made with /usr/bin/python3 and sees the system's
# packages. Ultralytics comes without its dependencies: they would pull in a CUDA build of torch several times that size.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec </dev/null

packages=(python3-torch python3-torchvision python3-opencv python3-pip python3-venv)
ultralytics=(ultralytics==8.4.190 ultralytics-thop==2.2.3 ultralytics-platform==0.1.99)
libraries=(polars matplotlib pillow pyyaml requests psutil scipy 'numpy<2')
made=.e2e/made

[ -e "$made" ] && exit 0
if ! dpkg -s "${packages[@]}" >/dev/null 2>&1; then
  command -v apt-get >/dev/null || { echo "The end-to-end test needs Debian (apt-get); run it there." >&2; exit 1; }
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${packages[@]}"
fi
rm -rf .e2e
mkdir .e2e
/usr/bin/python3 -m venv --system-site-packages .e2e/venv
.e2e/venv/bin/pip install --quiet --disable-pip-version-check --no-deps "${ultralytics[@]}"
.e2e/venv/bin/pip install --quiet --disable-pip-version-check "${libraries[@]}"  # its remarks on missing dependencies are harmless
YOLO_CONFIG_DIR="$PWD/.e2e" .e2e/venv/bin/python -c 'import torch, ultralytics; print("trainer: ultralytics", ultralytics.__version__, "torch", torch.__version__)'
touch "$made"
