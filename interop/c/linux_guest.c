// The first and only program of the virtual machine in which Linux' SCTP is tested: it loads modules, configures the network, and
// runs one peer (`linux_peer.c`) at a time. Commands come in and answers go out over a port of the machine, a line each; what is
// not for us goes to the peer's standard input.
//
// Commands: sysctl PATH VALUE | device NAME ADDRESS/BITS | up NAME MTU | start ARGUMENT... | kill | reboot | off

#include "linux_peer.h"
#include "messages.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/ipv6.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t child;
static int to_child = -1;

static void failed(const char *what) { say("{\"event\":\"failed\",\"what\":\"%s\",\"why\":\"%s\"}", what, strerror(errno)); }

// The modules that /modules/list names, in that order. One that the kernel has built in, or does not want, is said.
static void load_modules(void) {
    char name[256], path[300];
    FILE *list = fopen("/modules/list", "r");
    if (list == NULL) return;
    while (fgets(name, sizeof name, list) != NULL) {
        name[strcspn(name, "\n")] = 0;
        snprintf(path, sizeof path, "/modules/%s", name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || syscall(SYS_finit_module, fd, "", 0) != 0) fprintf(stderr, "module %s: %s\n", name, strerror(errno));
        if (fd >= 0) close(fd);
    }
    fclose(list);
}

// The port becomes our standard input and output; it is there a moment after its driver.
static void open_port(void) {
    for (int i = 0; i < 500; i++) {
        int fd = open("/dev/vport0p1", O_RDWR);
        if (fd >= 0) {
            dup2(fd, 0);
            dup2(fd, 1);
            close(fd);
            return;
        }
        usleep(10000);
    }
    fprintf(stderr, "there is no port\n");
    reboot(RB_POWER_OFF);
}

static void set_sysctl(const char *path, const char *value) {
    char file[300];
    snprintf(file, sizeof file, "/proc/sys/%s", path);
    int fd = open(file, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) != (ssize_t)strlen(value)) failed(path);
    if (fd >= 0) close(fd);
}

static void up(const char *name, int mtu) {
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    request.ifr_mtu = mtu;
    if (mtu > 0 && ioctl(fd, SIOCSIFMTU, &request) != 0) failed("mtu");
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0) failed(name);
    request.ifr_flags |= IFF_UP | IFF_RUNNING;
    if (ioctl(fd, SIOCSIFFLAGS, &request) != 0) failed(name);
    close(fd);
}

// ADDRESS/BITS. A device with an alias (`eth0:1`) has one more IPv4 address.
static void set_address(const char *name, char *text) {
    char *slash = strchr(text, '/');
    struct in6_ifreq six = {0};
    struct ifreq request = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&request.ifr_addr;
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    if (slash == NULL) {
        errno = EINVAL;
        failed(text);
        return;
    }
    *slash = 0;
    unsigned bits = (unsigned)atoi(slash + 1);
    int v6 = inet_pton(AF_INET6, text, &six.ifr6_addr) == 1;
    int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (v6) {
        if (ioctl(fd, SIOCGIFINDEX, &request) != 0) failed(name);
        six.ifr6_ifindex = request.ifr_ifindex, six.ifr6_prefixlen = bits;
        if (ioctl(fd, SIOCSIFADDR, &six) != 0) failed(text);
    } else {
        v4->sin_family = AF_INET;
        if (inet_pton(AF_INET, text, &v4->sin_addr) != 1 || ioctl(fd, SIOCSIFADDR, &request) != 0) failed(text);
        v4->sin_addr.s_addr = bits == 0 ? 0 : htonl(~0u << (32 - bits));
        if (ioctl(fd, SIOCSIFNETMASK, &request) != 0) failed(text);
    }
    close(fd);
}

static void end_child(void) {
    if (child > 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (to_child >= 0) close(to_child);
    child = 0, to_child = -1;
}

static void start(char *rest) {
    char *argv[64], *place;
    int argc = 0, ends[2];
    for (char *word = strtok_r(rest, " ", &place); word != NULL && argc < 63; word = strtok_r(NULL, " ", &place)) argv[argc++] = word;
    argv[argc] = NULL;
    end_child();
    if (pipe(ends) != 0) failed("pipe");
    child = fork();
    if (child == 0) {
        signal(SIGPIPE, SIG_DFL);
        dup2(ends[0], 0);
        close(ends[0]);
        close(ends[1]);
        // What stdio has read ahead of the port is not the peer's.
        stdin = fdopen(0, "r");
        _exit(peer(argc, argv));
    }
    close(ends[0]);
    to_child = ends[1];
    if (child < 0) failed("fork");
}

static void obey(char *line) {
    char whole[8192], *place;
    snprintf(whole, sizeof whole, "%s", line);
    char *word = strtok_r(line, " ", &place);
    if (word == NULL) return;
    if (strcmp(word, "sysctl") == 0) {
        char *path = strtok_r(NULL, " ", &place), *value = strtok_r(NULL, "", &place);
        if (path != NULL && value != NULL) set_sysctl(path, value);
    } else if (strcmp(word, "device") == 0) {
        char *name = strtok_r(NULL, " ", &place), *address = strtok_r(NULL, " ", &place);
        if (name != NULL && address != NULL) set_address(name, address);
    } else if (strcmp(word, "up") == 0) {
        char *name = strtok_r(NULL, " ", &place), *mtu = strtok_r(NULL, " ", &place);
        if (name != NULL) up(name, mtu == NULL ? 0 : atoi(mtu));
    } else if (strcmp(word, "echo") == 0) {
        // The commands before it are done.
        say("{\"event\":\"echo\",\"word\":\"%s\"}", place == NULL ? "" : place);
    } else if (strcmp(word, "start") == 0) {
        start(place == NULL ? line + strlen(line) : place);
    } else if (strcmp(word, "kill") == 0) {
        end_child();
        say("{\"event\":\"killed\"}");
    } else if (strcmp(word, "reboot") == 0) {
        reboot(RB_AUTOBOOT);
    } else if (strcmp(word, "off") == 0) {
        reboot(RB_POWER_OFF);
    } else if (to_child >= 0) {
        size_t len = strlen(whole);
        whole[len] = '\n';
        if (write(to_child, whole, len + 1) != (ssize_t)(len + 1)) failed("the peer does not listen");
    }
}

int main(void) {
    struct utsname system;
    char line[8191];
    mkdir("/proc", 0755);
    mkdir("/dev", 0755);
    mkdir("/sys", 0755);
    if (mount("proc", "/proc", "proc", 0, NULL) != 0 || mount("dev", "/dev", "devtmpfs", 0, NULL) != 0 ||
        mount("sys", "/sys", "sysfs", 0, NULL) != 0) {
        perror("mount");
    }
    signal(SIGPIPE, SIG_IGN);
    load_modules();
    open_port();
    uname(&system);
    say("{\"event\":\"booted\",\"kernel\":\"%s\"}", system.release);
    // When nobody is at the other end of the port any more, the machine has no purpose; at first there may be nobody yet.
    for (int silent = 0; silent < 30; silent++) {
        while (fgets(line, sizeof line, stdin) != NULL) {
            line[strcspn(line, "\n")] = 0;
            obey(line);
            silent = 0;
        }
        clearerr(stdin);
        usleep(100000);
    }
    reboot(RB_POWER_OFF);
    return 0;
}
