/**
 * Memory whose pages may take long to arrive: under a userfaultfd, or mapped from a file that a server
 * or another process provides. The daemon must not touch it, since its only thread would block. The
 * client's agent copies it instead.
 *
 * This misses memory that becomes slow after its registration, and memory after many mappings: see
 * `copy-guard.ts`.
 */
import { type Dir, opendirSync, readFileSync, readlinkSync } from 'node:fs';
import { visitMappings } from '#native-bridge/libc/process-maps';

/** File systems whose pages come from elsewhere, by the start of their names in mountinfo(5). */
const REMOTE_TYPES = /^(?:fuse|nfs|cifs|smb|9p|ceph|afs|coda|gfs2|ocfs2|lustre|virtiofs)/;
/** Interval between checks: they are expensive, since a program may have thousands of descriptors. */
const LOOK_INTERVAL_MS = 1_000;
/** Descriptors to check, at five microseconds each; a program can have a million. */
const DESCRIPTORS_MAX = 4096;
/** Mappings of a range to check, at two microseconds each; a program can have 65,530. */
const MAPPINGS_MAX = 256;

export class SlowMemory {
  readonly #pid: number;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  #usesUserfaultfd = false;

  constructor(pid: number) {
    this.#pid = pid;
  }

  /** Why the range may be slow; undefined if it is not, or if the process cannot be inspected. */
  reason(start: number, lengthBytes: number): string | undefined {
    if (this.#hasUserfaultfd()) return 'the process uses userfaultfd';
    const devices = new Set<string>();
    let seen = 0;
    try {
      visitMappings(this.#pid, start, start + lengthBytes, ({ device }) => {
        if (device !== undefined) devices.add(device);
        seen += 1;
        return seen < MAPPINGS_MAX;
      });
    } catch {
      return undefined;
    }
    if (devices.size === 0) return undefined;
    const type = this.#remoteType(devices);
    return type === undefined ? undefined : `a file on ${type} is mapped there`;
  }

  #hasUserfaultfd(): boolean {
    const nowMs = performance.now();
    if (nowMs - this.#lookedAtMs < LOOK_INTERVAL_MS) return this.#usesUserfaultfd;
    this.#lookedAtMs = nowMs;
    const folder = `/proc/${this.#pid}/fd`;
    this.#usesUserfaultfd = someEntry(folder, DESCRIPTORS_MAX, (path) => {
      return targetOf(path) === 'anon_inode:[userfaultfd]';
    });
    return this.#usesUserfaultfd;
  }

  #remoteType(devices: ReadonlySet<string>): string | undefined {
    let mounts: string;
    try {
      mounts = readFileSync(`/proc/${this.#pid}/mountinfo`, 'utf8');
    } catch {
      return undefined;
    }
    return remoteType(mounts, devices);
  }
}

/** The type of the first of these devices with remote pages; `mounts` is mountinfo(5). */
export function remoteType(mounts: string, devices: ReadonlySet<string>): string | undefined {
  for (const line of mounts.split('\n')) {
    const [, device = '', type = ''] = /^\d+ \d+ (\d+:\d+) .* - (\S+) /.exec(line) ?? [];
    if (devices.has(device) && REMOTE_TYPES.test(type)) return type;
  }
  return undefined;
}

/** True if one of the first `most` entries of a directory matches; false if it cannot be read. */
function someEntry(folder: string, most: number, matches: (path: string) => boolean): boolean {
  let entries: Dir;
  try {
    entries = opendirSync(folder, { bufferSize: 256 });
  } catch {
    // The process is gone or belongs to another user.
    return false;
  }
  try {
    for (let seen = 0; seen < most; seen += 1) {
      const entry = entries.readSync();
      if (entry === null) return false;
      if (matches(`${folder}/${entry.name}`)) return true;
    }
    return false;
  } catch {
    return false;
  } finally {
    entries.closeSync();
  }
}

function targetOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // Closed meanwhile.
    return '';
  }
}
