#!/usr/bin/env bash
# Installs the programs that tests run beside Python, from Debian's packages.
#
# Root installs the missing packages. Other users get the command to run; Java is required, and the tests of the
# other programs are skipped. With CI set, every program is required.
set -euo pipefail
folder=${VENV:-.venv}/programs
export PATH="$PWD/$folder/usr/bin:$PATH" DEBIAN_FRONTEND=noninteractive

missing=() packages=()
want() { # program, then the packages that bring it
  command -v "$1" >/dev/null && return
  missing+=("$1") packages+=("${@:2}")
}
[ -n "${JAVA_HOME:-}" ] || want java openjdk-17-jre-headless
want chromium chromium
want wsdl2h gsoap libgsoap-dev
want gcc gcc libc6-dev
want strace strace
want node nodejs
want npm npm
want systemd-analyze systemd
# Debian keeps PostgreSQL's programs off the path. The tests start servers of their own.
[ -x /usr/lib/postgresql/15/bin/postgres ] || want postgres postgresql
installable=("${packages[@]}")
want promtool prometheus
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing ${packages[*]}"
  apt-get update -qq
  [ ${#installable[@]} = 0 ] || apt-get install -y -qq --no-install-recommends "${installable[@]}" >/dev/null
  if ! command -v promtool >/dev/null; then
    # Installing the package "prometheus" would start a service, so only unpack it.
    mkdir -p "$folder" && cd "$folder"
    apt-get download -qq -o APT::Sandbox::User=root prometheus
    dpkg-deb --extract prometheus_*.deb . && rm prometheus_*.deb
  fi
  exit 0
fi

echo "Missing programs: ${missing[*]}. On Debian, as root: apt-get install --no-install-recommends ${packages[*]}"
case " ${missing[*]} " in *" java "*) echo "The Spark tests require Java 17."; exit 1 ;; esac
[ -z "${CI:-}" ] || { echo "With CI set, every program is required."; exit 1; }
echo "The tests that run these programs are skipped."
