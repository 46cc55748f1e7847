import { closeSync, openSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import koffi from 'koffi';
import { describe, expect, it } from 'vitest';
import { remoteType, SlowMemory } from '#daemon/clients/objects/slow-memory';
import { visitMappings } from '#native-bridge/libc/process-maps';
import { temporaryFolder } from '#test/support/temporary-folder';

const MOUNTS = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:21 / /proc rw,nosuid - proc proc rw
36 22 0:33 / /home/me/remote rw,nosuid,nodev - fuse.sshfs me@host:/ rw,user_id=1000
37 22 0:34 / /srv rw shared:9 master:2 - nfs4 server:/srv rw,vers=4.2,hard
38 22 0:35 / /data with\\040space rw - fuseblk /dev/sdb1 rw
`;

const PAGE_BYTES = 4096;
const PROT_READ = 1;
const MAP_SHARED = 1;
const ANONYMOUS = 0x20;
const libc = koffi.load('libc.so.6');
const mmap = libc.func('uint64_t mmap(void *, uint64_t, int, int, int, int64_t)');
const munmap = libc.func('int munmap(uint64_t, uint64_t)');

describe('memory of a file', () => {
  it.each([
    ['8:1', undefined],
    ['0:33', 'fuse.sshfs'],
    ['0:34', 'nfs4'],
    ['0:35', 'fuseblk'],
    ['9:9', undefined],
  ])('on device %s comes from %s', (device, type) => {
    expect(remoteType(MOUNTS, new Set(['0:21', device]))).toBe(type);
  });

  it('is recognised by its device, and is not slow on a file system of this host', () => {
    const path = join(temporaryFolder(), 'file');
    writeFileSync(path, new Uint8Array(PAGE_BYTES));
    const fd = openSync(path, 'r');
    const address = Number(mmap(null, PAGE_BYTES, PROT_READ, MAP_SHARED, fd, 0));
    closeSync(fd);
    const devices: (string | undefined)[] = [];
    visitMappings(process.pid, address, address + PAGE_BYTES, ({ device }) => {
      devices.push(device);
      return true;
    });
    // The file system decides which one: layered ones show the device below them.
    expect(devices).toEqual([expect.stringMatching(/^\d+:\d+$/)]);
    expect(new SlowMemory(process.pid).reason(address, PAGE_BYTES)).toBeUndefined();
    munmap(address, PAGE_BYTES);
  });
});

describe('a process with userfaultfd', () => {
  /** SYS_userfaultfd of this architecture. */
  const NUMBER = process.arch === 'arm64' ? 282 : 323;
  const syscall = libc.func('int64_t syscall(int64_t, int64_t)');
  const USER_MODE_ONLY = 1;

  it('is recognised by its descriptors, of which no more than 4096 are looked at', (context) => {
    const probe = Number(syscall(NUMBER, USER_MODE_ONLY));
    if (probe < 0) context.skip('this system has no userfaultfd for programs');
    closeSync(probe);
    const address = Number(mmap(null, PAGE_BYTES, PROT_READ, MAP_SHARED | ANONYMOUS, -1, 0));
    const reason = (): string | undefined => {
      return new SlowMemory(process.pid).reason(address, PAGE_BYTES);
    };
    const [first, ...rest] = Array.from({ length: 4200 }, () => openSync('/dev/null', 'r'));
    const late = Number(syscall(NUMBER, USER_MODE_ONLY));
    expect(late).toBeGreaterThan(4096);
    expect(reason()).toBeUndefined();
    closeSync(first as number);
    const early = Number(syscall(NUMBER, USER_MODE_ONLY));
    expect(early).toBe(first);
    expect(reason()).toBe('the process uses userfaultfd');
    for (const fd of [early, late, ...rest]) closeSync(fd);
    munmap(address, PAGE_BYTES);
  });
});
