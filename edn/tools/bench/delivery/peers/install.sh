#!/usr/bin/env bash
# Installs the database servers of the peers of `edn bench delivery`, from Debian's packages.
#
# The benchmark starts servers of its own, so no service of the packages is started. Users other than root get
# the command to run.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

packages=()
command -v postgres >/dev/null || compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null || packages+=(postgresql)
command -v redis-server >/dev/null || packages+=(redis-server)
[ ${#packages[@]} -gt 0 ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "Missing programs. On Debian, as root: apt-get install --no-install-recommends ${packages[*]}"
  exit 1
fi
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  trap 'rm -f $policy' EXIT
  printf '#!/bin/sh\nexit 101\n' >$policy
  chmod +x $policy
fi
echo "installing ${packages[*]}"
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${packages[@]}" >/dev/null
