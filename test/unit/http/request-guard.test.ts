import { describe, expect, it } from 'vitest';
import { type GuardPolicy, guardRequest } from '#daemon/http/request-guard';

const TOKEN = 'correct-horse-battery-staple';
const OPEN: GuardPolicy = { hostNames: new Set(['localhost', 'node1']), token: undefined };
const CLOSED: GuardPolicy = { ...OPEN, token: TOKEN };

/** 'allowed', or the status and the field. */
function judge(
  policy: GuardPolicy,
  headers: Record<string, string>,
  request: { method?: string; open?: boolean; hostCount?: number } = {},
): string {
  const { method = 'GET', open = false, hostCount = 'host' in headers ? 1 : 0 } = request;
  try {
    guardRequest(policy, { method, headers, open, hostCount });
    return 'allowed';
  } catch (error) {
    const { status, field } = error as { status: number; field: string };
    return `${status} ${field}`;
  }
}

describe('Host', () => {
  it.each([
    'localhost',
    'LOCALHOST:7470',
    'node1:80',
    '127.0.0.1:7470',
    '127.8.8.8',
    '[::1]:7470',
    '[::1]',
    '192.168.1.7:1',
  ])('%s names the server', (host) => {
    expect(judge(OPEN, { host })).toBe('allowed');
  });

  it.each([
    'evil.example',
    'evil.example:7470',
    'localhost.evil.example',
    'node1.evil.example:80',
    '127.0.0.1.evil.example',
    '2130706433',
    '0x7f.1',
    'node2',
  ])('%s may have been rebound to us', (host) => {
    expect(judge(OPEN, { host })).toBe('403 header Host');
  });

  it.each([
    '',
    ' ',
    'a b',
    'user@localhost',
    'localhost:',
    'localhost:123456',
    'localhost/x',
    '[::1',
    'löcalhost',
  ])('%j is invalid', (host) => {
    expect(judge(OPEN, { host })).toBe('400 header Host');
  });

  it('is required, exactly once', () => {
    expect(judge(OPEN, {})).toBe('400 header Host');
    expect(judge(OPEN, { host: 'localhost' }, { hostCount: 2 })).toBe('400 header Host');
  });

  it('is checked for open routes, too', () => {
    expect(judge(CLOSED, { host: 'evil.example' }, { open: true })).toBe('403 header Host');
  });
});

describe('Origin', () => {
  it('must be the server itself', () => {
    expect(judge(OPEN, { host: '127.0.0.1:1', origin: 'http://127.0.0.1:1' })).toBe('allowed');
    expect(judge(OPEN, { host: 'node1', origin: 'https://node1' })).toBe('allowed');
  });

  it.each(['http://evil.example', 'http://127.0.0.1:2', 'http://127.0.0.1', 'null', '', 'file://'])(
    '%j is another origin',
    (origin) => {
      expect(judge(OPEN, { host: '127.0.0.1:1', origin })).toBe('403 header Origin');
    },
  );
});

describe('Sec-Fetch-Site', () => {
  const host = '127.0.0.1:1';

  it('allows the page itself and the address bar', () => {
    expect(judge(OPEN, { host, 'sec-fetch-site': 'same-origin' })).toBe('allowed');
    expect(judge(OPEN, { host, 'sec-fetch-site': 'none' })).toBe('allowed');
  });

  it.each(['cross-site', 'same-site'])('refuses resources that a %s page loads', (site) => {
    const refused = '403 header Sec-Fetch-Site';
    expect(judge(OPEN, { host, 'sec-fetch-site': site, 'sec-fetch-mode': 'no-cors' })).toBe(
      refused,
    );
    expect(judge(OPEN, { host, 'sec-fetch-site': site })).toBe(refused);
    const form = { host, 'sec-fetch-site': site, 'sec-fetch-mode': 'navigate' };
    expect(judge(OPEN, form, { method: 'POST' })).toBe(refused);
  });

  it('allows navigation by a link from another site', () => {
    const link = { host, 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' };
    expect(judge(OPEN, link)).toBe('allowed');
  });
});

describe('the token', () => {
  const host = '10.0.0.1:7470';

  it('grants access, in any case of the scheme', () => {
    expect(judge(CLOSED, { host, authorization: `Bearer ${TOKEN}` })).toBe('allowed');
    expect(judge(CLOSED, { host, authorization: `bearer ${TOKEN}` })).toBe('allowed');
  });

  it.each([
    undefined,
    '',
    'Bearer',
    'Bearer ',
    TOKEN,
    `Basic ${TOKEN}`,
    `Bearer ${TOKEN}x`,
    `Bearer ${TOKEN.slice(1)}`,
    'Bearer undefined',
  ])('does not match %j', (authorization) => {
    const headers = authorization === undefined ? { host } : { host, authorization };
    expect(judge(CLOSED, headers)).toBe('401 header Authorization');
  });

  it('is not required on open routes, nor when none is configured', () => {
    expect(judge(CLOSED, { host }, { open: true })).toBe('allowed');
    expect(judge(OPEN, { host })).toBe('allowed');
  });
});
