import { describe, expect, it } from 'vitest';
import { EventQueue } from '../../../../daemon/ipc/kernel/event-queue.ts';

/** A descriptor that counts the bytes in it. */
class Path {
  bytes = 0;
  closed = 0;

  write(bytes: Uint8Array): void {
    this.bytes += bytes.length;
  }

  close(): void {
    this.closed += 1;
  }
}

function queue(): { queue: EventQueue<string, string>; path: Path } {
  return { queue: new EventQueue<string, string>(new Uint8Array(16), 7), path: new Path() };
}

describe('the bytes on a descriptor', () => {
  it('one for each time that the queue becomes non-empty', () => {
    const { queue: events, path } = queue();
    events.attach(path);
    events.push('a', 'x');
    events.push('b', 'x');
    expect(path.bytes).toBe(1);
    expect(events.pop()).toEqual({ record: 'a', owner: 'x', emptied: false });
    expect(events.pop()).toEqual({ record: 'b', owner: 'x', emptied: true });
    expect(events.pop()).toBeUndefined();
    events.push('c', 'x');
    expect(path.bytes).toBe(2);
  });

  it('records queued before the descriptor are signalled when it arrives, once', () => {
    const { queue: events, path } = queue();
    events.push('a', 'x');
    events.push('b', 'x');
    events.attach(path);
    events.push('c', 'x');
    expect(path.bytes).toBe(1);
    expect(events.attached).toBe(true);
  });

  it('no byte is sent for records taken before the descriptor came', () => {
    const { queue: events, path } = queue();
    events.push('a', 'x');
    expect(events.pop()?.emptied).toBe(false);
    events.push('b', 'x');
    expect(events.purge('x')).toBe(false);
    events.attach(path);
    expect(path.bytes).toBe(0);
  });
});

describe('the records of an object', () => {
  it('a purge removes them, and reports whether that emptied the queue', () => {
    const { queue: events, path } = queue();
    events.attach(path);
    for (const [record, owner] of ['ax', 'by', 'cx'].map((text) => [...text])) {
      events.push(record ?? '', owner ?? '');
    }
    expect(events.purge('x')).toBe(false);
    expect(events.length).toBe(1);
    expect(events.purge('z')).toBe(false);
    expect(events.purge('y')).toBe(true);
    expect(events.purge('y')).toBe(false);
  });

  it('can be moved, oldest first', () => {
    const { queue: events, path } = queue();
    events.attach(path);
    for (const record of ['a', 'b']) events.push(record, 'x');
    expect(events.take('x')).toEqual({ records: ['a', 'b'], emptied: true });
    expect(events.take('x')).toEqual({ records: [], emptied: false });
  });
});

describe('the end', () => {
  it('is reported once, closes the descriptor, and accepts no more waits', () => {
    const { queue: events, path } = queue();
    let ended = 0;
    events.onEnded = () => {
      ended += 1;
    };
    events.attach(path);
    events.push('a', 'x');
    events.end();
    events.end();
    events.push('b', 'x');
    expect([ended, path.closed, path.bytes, events.length]).toEqual([1, 1, 1, 0]);
    expect(events.ended).toBe(true);
    expect(events.pop()).toBeUndefined();
    const late = new Path();
    events.attach(late);
    expect(events.attached).toBe(false);
  });
});
