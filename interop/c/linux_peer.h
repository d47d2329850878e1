#ifndef LINUX_PEER_H
#define LINUX_PEER_H

// One association, from its words to its end; see linux_peer.c.
int peer(int argc, char **argv);

#endif
