// Package image guarantees that the image of the functions is what Dockerfile says, as far as a
// machine without a container engine can tell. Its tests build the binary with the line of Dockerfile
// that builds it, and run it as Cloud Run does: in a root with nothing else, as nobody, with a file
// system that cannot be written to. They also run the four functions as processes of that binary
// behind Google's emulators of Pub/Sub and Firestore.
package image
