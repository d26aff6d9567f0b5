#!/usr/bin/env bash
# Installs the programs that tests run beside Python, from Debian's packages.
#
# Root installs the missing packages. Other users get the command to run; Java is required, and the tests of the
# other programs are skipped. With CI set, every program is required.
set -euo pipefail
folder=${VENV:-.venv}/programs
export DEBIAN_FRONTEND=noninteractive
for place in bin sbin lib/rabbitmq/bin; do PATH="$PWD/$folder/usr/$place:/usr/$place:$PATH"; done

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
# What the brokers below need.
want erl erlang-base erlang-crypto erlang-eldap erlang-inets erlang-mnesia erlang-os-mon erlang-parsetools \
  erlang-public-key erlang-runtime-tools erlang-ssl erlang-syntax-tools erlang-tools erlang-xmerl
command -v mosquitto >/dev/null || packages+=(libcjson1 libdlt2 libmosquitto1 libwrap0)
installable=("${packages[@]}")
# Installing these packages would start services, so they are only unpacked; libfaketime has no program.
want promtool prometheus
want mosquitto mosquitto
want nats-server nats-server
want rabbitmq-server rabbitmq-server
want etcd etcd-server
[ -e "$folder/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1" ] \
  || want libfaketime libfaketime
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "installing ${packages[*]}"
  apt-get update -qq
  [ ${#installable[@]} = 0 ] || apt-get install -y -qq --no-install-recommends "${installable[@]}" >/dev/null
  mkdir -p "$folder" && cd "$folder"
  for package in "${packages[@]:${#installable[@]}}"; do
    apt-get download -qq -o APT::Sandbox::User=root "$package"
    dpkg-deb --extract "$package"_*.deb . && rm "$package"_*.deb
  done
  exit 0
fi

echo "Missing programs: ${missing[*]}. On Debian, as root: apt-get install --no-install-recommends ${packages[*]}"
case " ${missing[*]} " in *" java "*) echo "The Spark tests require Java 17."; exit 1 ;; esac
[ -z "${CI:-}" ] || { echo "With CI set, every program is required."; exit 1; }
echo "The tests that run these programs are skipped."
