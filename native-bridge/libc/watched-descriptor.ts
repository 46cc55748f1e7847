/**
 * Watches descriptors of the libraries' channels in Node's own event loop: libuv polls them with
 * its other sockets, so there is no thread to start, feed or stop.
 */

import { readFileSync } from 'node:fs';
import koffi from 'koffi';
import { checked, libc, type NumberCall } from './libc.ts';
import { holdRoot, releaseRoot } from './open-roots.ts';

const fcntl = libc.func('int fcntl(int fd, int command, int argument)') as NumberCall;

const F_GETFL = 3;
const F_SETFL = 4;
const O_NONBLOCK = 0o4000;

/** errno of a read that found nothing (EAGAIN). */
export const WOULD_BLOCK_ERRNO = 11;

/** Makes reads of a descriptor return at once. Throws `SystemCallError`. */
export function makeNonBlocking(fd: number): void {
  const flags = checked('fcntl F_GETFL', fcntl(fd, F_GETFL, 0));
  checked('fcntl F_SETFL', fcntl(fd, F_SETFL, flags | O_NONBLOCK));
}

export interface DescriptorWatch extends Disposable {
  /** Ends the watch; call it before closing the descriptor. A second call does nothing. */
  close(): void;
  /** Sets whether the watch keeps the process alive. Initially it does. */
  hold(alive: boolean): void;
}

/** Open watches, which end with the thread: koffi aborts the process if it calls back after that. */
const open = new Set<Disposable>();

process.once('exit', () => {
  for (const watch of open) watch[Symbol.dispose]();
});

function track(watch: Disposable): void {
  open.add(watch);
  holdRoot(watch);
}

function untrack(watch: Disposable): void {
  open.delete(watch);
  releaseRoot(watch);
}

const WATCHED = { readable: true, disconnect: true };

/**
 * Calls `onReadable` in a separate turn, repeatedly while the descriptor is readable, and `onError` if the
 * socket has an error, which `onError` must read unless it ends the watch.
 */
export function watchDescriptor(
  fd: number,
  onReadable: () => void,
  onError?: () => void,
): DescriptorWatch {
  keepAddonLoaded();
  let closed = false;
  const turn = (): void => {
    if (!closed) onReadable();
  };
  // koffi calls back without Node's callback scope, so promises would not continue before some other
  // event. An immediate runs in the same iteration of the loop, and in a scope.
  const happened = (status: unknown): void => {
    setImmediate(typeof status === 'number' && status < 0 ? failed : turn);
  };
  const handle = koffi.node.poll(fd, WATCHED, happened);
  const failed = (): void => {
    if (onError === undefined) turn();
    if (closed || onError === undefined) return;
    onError();
    // libuv stops watching a descriptor in error.
    if (!closed) handle.start(WATCHED, happened);
  };
  const watch: DescriptorWatch = {
    close() {
      if (closed) return;
      closed = true;
      untrack(watch);
      handle.close();
    },
    [Symbol.dispose]() {
      watch.close();
    },
    hold(alive) {
      if (closed) return;
      if (alive) handle.ref();
      else handle.unref();
    },
  };
  track(watch);
  return watch;
}

/** A watch over a socket that is read and written. */
export interface SocketWatch extends Disposable {
  /** Selects the events: readable, writable, or neither. */
  want(readable: boolean, writable: boolean): void;
  /** Ends the watch; call it before closing the descriptor. A second call does nothing. */
  close(): void;
}

/**
 * Calls `onReady` in a separate turn whenever a selected event occurs, initially when readable, or on
 * an error; again while it persists. Does not keep the process alive.
 */
export function watchSocket(fd: number, onReady: () => void): SocketWatch {
  keepAddonLoaded();
  let closed = false;
  let active = true;
  let wanted = { readable: true, writable: false };
  const turn = (): void => {
    if (!closed) onReady();
  };
  // See `watchDescriptor` for both.
  const happened = (status: unknown): void => {
    if (typeof status === 'number' && status < 0) active = false;
    setImmediate(turn);
  };
  const handle = koffi.node.poll(fd, wanted, happened);
  handle.unref();
  const watch: SocketWatch = {
    want(readable, writable) {
      if (closed) return;
      const any = readable || writable;
      const same = wanted.readable === readable && wanted.writable === writable;
      if (same && active === any) return;
      wanted = { readable, writable };
      active = any;
      if (any) handle.start(wanted, happened);
      else handle.stop();
    },
    close() {
      if (closed) return;
      closed = true;
      untrack(watch);
      handle.close();
    },
    [Symbol.dispose]() {
      watch.close();
    },
  };
  track(watch);
  return watch;
}

const dlopen = libc.func('void *dlopen(const char *path, int flags)') as (
  path: string,
  flags: number,
) => bigint | null;

const RTLD_NOW = 2;
const RTLD_NODELETE = 0x1000;

let kept = false;

/**
 * Keeps koffi's addon loaded for the life of the process. Node unloads it with the last thread that
 * uses it, but an ended worker closes its watches later, with the addon's code.
 */
function keepAddonLoaded(): void {
  if (kept) return;
  kept = true;
  const line = readFileSync('/proc/self/maps', 'utf8')
    .split('\n')
    .find((entry) => entry.endsWith('/koffi.node'));
  if (line !== undefined) dlopen(line.slice(line.indexOf('/')), RTLD_NOW | RTLD_NODELETE);
}
