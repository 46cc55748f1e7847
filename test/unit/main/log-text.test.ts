import { describe, expect, it } from 'vitest';
import { logText } from '#daemon/main/log-text';

/** A quarter past nine in the evening, in the time zone of the test. */
const TIME = new Date(2024, 4, 6, 21, 15, 3, 42).getTime();

function textOf(record: Record<string, unknown>): string {
  return logText(`${JSON.stringify({ level: 40, time: TIME, ...record })}\n`);
}

describe('a log line for people', () => {
  it('shows time, level, message, then the fields', () => {
    expect(textOf({ kind: 'device', device: 'a', qpn: 17, msg: 'the peer ended the stream' })).toBe(
      '21:15:03.042 warn  the peer ended the stream  kind=device  device=a  qpn=17\n',
    );
  });

  it('quotes values with spaces and shows structure as JSON', () => {
    expect(textOf({ peer: '::1 port 5', devices: [{ name: 'a' }], msg: 'ready' })).toBe(
      '21:15:03.042 warn  ready  peer="::1 port 5"  devices=[{"name":"a"}]\n',
    );
  });

  it('escapes control characters, so no program name can control the terminal', () => {
    const text = textOf({ program: 'a\u001b[31m\n\u009b2J', msg: 'hello\u001b[0m\nfaked' });
    expect(text.slice(0, -1)).not.toMatch(/\p{Cc}/u);
    expect(text).toContain('hello\\u001b[0m\\nfaked');
  });
});
