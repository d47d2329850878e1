# What a user of the packages does, in a fresh Debian; ends at the first thing that does not work.
mount -t proc proc /proc
step() { echo "== $*"; }

step install
apt-get -q -q update
apt-get -q -q -y -o Dpkg::Use-Pty=0 install --no-install-recommends /debs/*.deb gcc libc6-dev make cmake pkg-config >/root/apt.log 2>&1 ||
    { tail -n 40 /root/apt.log; exit 1; }
dpkg-query -W -f '${Package} ${Version} ${Architecture}: ${Depends}\n' libneat0 libneat-dev libneater0 libneater-dev neater neater-pm
for name in libneat.so.0 libneater.so.0; do ldconfig -p | grep -q "$name"; done

step manual pages
for page in man1/neater.1 man1/neater-get.1 man1/neater-pm.1 man3/libneat.3 man3/neat_open.3 man3/libneater.3 man3/neater_poll_event.3; do
    [ -s "/usr/share/man/$page.gz" ] || { echo "no $page"; exit 1; }
done

mkdir -p /root/try && cd /root/try
for package in libneat-dev libneater-dev; do cp -r "/usr/share/doc/$package/examples" $package; done

step a program on neat.h, by pkg-config
cc -o neat_server libneat-dev/echo_server.c $(pkg-config --cflags --libs libneat)
cc -o neat_client libneat-dev/echo_client.c $(pkg-config --cflags --libs libneat)
sleep 30 | ./neat_server tcp 7501 >neat.out &
server=$!
while ! grep -q listening neat.out; do sleep 0.1; done
./neat_client tcp 127.0.0.1 7501 100000 | grep '^100000 bytes over'
kill $server 2>/dev/null || true

step a program on neater.h, by pkg-config
cc -o server libneater-dev/echo_server.c $(pkg-config --cflags --libs libneater)
cc -o client libneater-dev/echo_client.c $(pkg-config --cflags --libs libneater)
echo_by() {
    "$1" 1 >port &
    while ! [ -s port ]; do sleep 0.1; done
    "$2" "127.0.0.1:$(cat port)" "hello by $2" | grep "hello by $2"
    wait $!
    rm port
}
echo_by ./server ./client

step both by CMake
cat >CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.13)
project(both C)
find_package(neat 1.0 REQUIRED)
find_package(neater REQUIRED)
add_executable(neat_client_2 libneat-dev/echo_client.c)
target_link_libraries(neat_client_2 neat::neat)
add_executable(server_2 libneater-dev/echo_server.c)
target_link_libraries(server_2 neater::neater)
add_executable(client_2 libneater-dev/echo_client.c)
target_link_libraries(client_2 neater::neater)
CMAKE
cmake -S . -B built >cmake.log || { cat cmake.log; exit 1; }
cmake --build built >cmake.log || { cat cmake.log; exit 1; }
echo_by built/server_2 built/client_2
built/neat_client_2 2>&1 | grep usage

step neater get from neater serve
mkdir www && head -c 1000000 /dev/urandom >www/file
neater serve --quiet --port 7502 --cert-dir cert www >serve.log 2>&1 &
server=$!
for i in $(seq 100); do [ -s cert/localhost.pem ] && break; sleep 0.1; done
neater get --ca cert/localhost.pem -o got https://localhost:7502/file || { cat serve.log; exit 1; }
cmp www/file got
kill -INT $server
wait $server || [ $? = 130 ]

step the policy manager, as its service runs it
id neater
[ "$(stat -c %U /etc/neater/pib)" = neater ]
unit=/lib/systemd/system/neater-pm.service
exec="$(sed -n 's/^ExecStart=//p' $unit)"
[ "$exec" = "/usr/bin/neater pm --shared --sock /run/neater --pib /etc/neater/pib --cib /etc/neater/cib" ]
[ "$(dpkg-query -L neater-pm | grep -c -E '^/usr/bin/neater-pm$|/systemd/system/neater-pm.service$')" = 2 ]
neater-pm --version | grep '^neater-pm '
neater-pm --help | grep -q -e --shared
install -d -o neater -g neater /run/neater
setpriv --reuid neater --regid neater --clear-groups $exec --no-rest --no-pvd >pm.log 2>&1 &
manager=$!
for i in $(seq 100); do [ -S /run/neater/neat_pm_socket ] && break; sleep 0.1; done
neater policy ask --sock /run/neater '[{"transport": {"value": "TCP", "precedence": 1}}]' >answer || { cat pm.log; exit 1; }
grep -q '"transport".*"value": "TCP"' answer
[ "$(readlink /proc/$manager/exe)" = /usr/bin/neater-pm ]
kill -INT $manager
wait $manager || [ $? = 130 ]
rm -r /run/neater

step remove
apt-get -q -q -y -o Dpkg::Use-Pty=0 purge libneat0 libneat-dev libneater0 libneater-dev neater neater-pm >/root/apt.log 2>&1 ||
    { tail -n 40 /root/apt.log; exit 1; }
if find / -xdev -path /proc -prune -o -path /root -prune -o -path /debs -prune -o \( -name '*neat*' -print \) | grep .; then
    echo "that is left of the packages"
    exit 1
fi
echo "the packages are fine"
