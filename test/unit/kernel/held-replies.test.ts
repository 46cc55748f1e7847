import { beforeEach, describe, expect, it } from 'vitest';
import { IncomingCopies } from '#daemon/clients/objects/incoming-copies';
import { HeldReplies } from '#daemon/kernel/held-replies';

let alarms: (() => void)[];
let replies: HeldReplies<string>;
let incoming: IncomingCopies;
let sent: string[];

function hold(connection: string): void {
  const note = (what: string) => () => void sent.push(`${what} ${connection}`);
  replies.hold(connection, incoming, note('send'), note('remind'));
}

function pass(): void {
  for (const run of alarms.splice(0)) run();
}

beforeEach(() => {
  alarms = [];
  sent = [];
  replies = new HeldReplies((_, run) => void alarms.push(run));
  incoming = new IncomingCopies();
  incoming.beginEnding();
});

describe('held replies', () => {
  it('are sent once the copies are over, after reminders at intervals', () => {
    hold('a');
    pass();
    hold('b');
    expect([replies.has('a'), alarms.length, sent]).toEqual([true, 1, ['remind a']]);
    pass();
    incoming.endEnding();
    expect(sent).toEqual(['remind a', 'remind a', 'remind b', 'send a', 'send b']);
    pass();
    expect([replies.has('a'), alarms, sent.length]).toEqual([false, [], 5]);
  });

  it('are neither sent nor announced on a connection that has closed', () => {
    hold('a');
    replies.drop('a');
    pass();
    incoming.endEnding();
    expect([sent, alarms]).toEqual([[], []]);
  });
});
