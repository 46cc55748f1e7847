import { describe, expect, it } from 'vitest';
import type { MemoryTier } from '#contract/verbs/provider';
import { AgentChannel } from '#daemon/clients/objects/agent-channel';
import { DaemonMemory } from '#daemon/clients/objects/daemon-memory';
import { addressOf, libc } from '#native-bridge/libc/libc';
import type { PeerProcess } from '#native-bridge/libc/peer-process';
import { openProcessDescriptor } from '#native-bridge/libc/process-vm';
import { SELF } from '#test/support/own-process';

const all: MemoryTier[] = ['shared', 'process_vm', 'agent'];

function memoryOf(peer = SELF, tiers = all): DaemonMemory {
  return new DaemonMemory(peer, tiers, () => 0);
}

function withAgent(memory: DaemonMemory): DaemonMemory {
  const connection = {
    closed: false,
    unreadMaxBytes: 0,
    write: () => undefined,
    keep: () => undefined,
  };
  memory.agent = new AgentChannel(connection);
  return memory;
}

const buffer = new Uint8Array(4096);
const address = addressOf(buffer);

describe('the tier of own memory', () => {
  it('is process_vm if the kernel allows it', () => {
    const memory = memoryOf();
    const { backing, reason, release } = memory.openProcess(address, 4096);
    expect(backing.tier).toBe('process_vm');
    expect(reason).toContain(`pid ${process.pid}`);
    buffer[5] = 55;
    const target = new Uint8Array(1);
    expect(backing.read(5, 1, target, 0)).toBe(true);
    expect(target[0]).toBe(55);
    expect(backing.read(4095, 2, new Uint8Array(2), 0)).toBe(false);
    release();
    expect(backing.read(5, 1, target, 0)).toBe(false);
    expect(backing.write(5, target, 0, 1)).toBe(false);
    memory.close();
  });

  const gone = (): number => openProcessDescriptor(2 ** 22 + 5);

  it.each<[string, PeerProcess, MemoryTier[], RegExp]>([
    ['process_vm is off', SELF, ['shared', 'agent'], /switched off/],
    ['the client is in another PID namespace', { ...SELF, pid: 0 }, all, /PID namespace/],
    ['the client is another user’s', { ...SELF, uid: SELF.uid + 1 }, all, /another user/],
    ['its process is gone', { ...SELF, openDescriptor: gone }, all, /pidfd_open: (ESRCH|EINVAL)/],
  ])('is agent when %s, and reports why', (_why, credentials, tiers, reason) => {
    const memory = withAgent(memoryOf(credentials, tiers));
    const opened = memory.openProcess(address, 4096);
    expect(opened.backing.tier).toBe('agent');
    expect(opened.reason).toMatch(reason);
    memory.close();
  });

  it('is none, with both reasons, when neither works', () => {
    const off = memoryOf(SELF, ['shared']);
    expect(() => off.openProcess(address, 1)).toThrow(/process_vm is switched off.*agent tier/);
    const alone = memoryOf(SELF, ['shared', 'agent']);
    expect(() => alone.openProcess(address, 1)).toThrow(/switched off; the client has no agent/);
  });

  it('fails with EFAULT for unmapped bytes', () => {
    const memory = withAgent(memoryOf());
    expect(() => memory.openProcess(4096n, 1)).toThrow(expect.objectContaining({ code: 'EFAULT' }));
    memory.close();
  });

  it('process_vm: memory unmapped later is lost, not touched', () => {
    const mmap = libc.func(
      'uint64_t mmap(void *at, uint64_t length, int protection, int flags, int fd, int64_t offset)',
    ) as (at: null, length: number, ...rest: number[]) => number | bigint;
    const munmap = libc.func('int munmap(uint64_t at, uint64_t length)') as (
      at: number | bigint,
      length: number,
    ) => number;
    const mapped = mmap(null, 8192, 3, 0x22, -1, 0);
    const memory = memoryOf();
    const { backing } = memory.openProcess(BigInt(mapped), 8192);
    expect(backing.write(0, new Uint8Array(8192), 0, 8192)).toBe(true);
    expect(munmap(mapped, 8192)).toBe(0);
    expect(backing.write(0, new Uint8Array(8), 0, 8)).toBe(false);
    expect(backing.read(4096, 8, new Uint8Array(8), 0)).toBe(false);
    memory.close();
  });
});

describe('shared memory of a client', () => {
  it('is sent once by its token, and by no other client’s token', () => {
    const memory = memoryOf();
    const { mapping, view, release } = memory.createShared(5000);
    expect(view.length).toBe(5000);
    const sent: (number | undefined)[] = [];
    memory.sendDescriptor('0'.repeat(32), (descriptor) => sent.push(descriptor));
    memory.sendDescriptor(mapping.token, (descriptor) => sent.push(descriptor));
    memory.sendDescriptor(mapping.token, (descriptor) => sent.push(descriptor));
    expect(sent).toEqual([undefined, expect.any(Number), undefined]);
    release();
    release();
  });

  it('for rings is one file, sent whenever its client asks, until it has gone', () => {
    const memory = memoryOf();
    const [one, two] = [memory.createRing(5000), memory.createRing(5000)];
    expect(one.mapping.token).toBe(two.mapping.token);
    const sent: (number | undefined)[] = [];
    const ask = () => memory.sendDescriptor(one.mapping.token, (fd) => sent.push(fd));
    ask();
    ask();
    one.release();
    two.release();
    ask();
    memory.close();
    ask();
    const fd = sent[0];
    expect(sent).toEqual([expect.any(Number), fd, fd, undefined]);
  });

  it('for an oversized ring is a separate file', () => {
    const memory = memoryOf();
    const { mapping, release } = memory.createRing(5 * 2 ** 20);
    expect(mapping.within).toBeUndefined();
    release();
    memory.close();
  });
});
