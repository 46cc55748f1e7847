import { createHash } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { beforeEach, describe, expect, it } from 'vitest';
import type { RouteReply } from '#daemon/http/http-route';
import { pagePolicy, pageRoute } from '#daemon/http/page-route';
import { temporaryFolder } from '#test/support/temporary-folder';

const PAGE = '<html><style>a{}</style><script type="module">run(1)</script></html>';

let directory: string;
let path: string;

beforeEach(() => {
  directory = temporaryFolder();
  path = join(directory, 'page.html');
});

async function ask(route: ReturnType<typeof pageRoute>): Promise<RouteReply> {
  const signal = new AbortController().signal;
  return await route.handle({ params: {}, query: {}, signal, readJson: async () => ({}) });
}

function hash(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

describe('the route of the page', () => {
  it('responds without the token: the page contains no data', () => {
    expect(pageRoute()).toMatchObject({ method: 'GET', path: '/', open: true });
  });

  it('serves the file as it was at the first request', async () => {
    const route = pageRoute(pathToFileURL(path));
    writeFileSync(path, PAGE);
    const reply = await ask(route);
    expect(reply).toMatchObject({ status: 200, type: 'text/html; charset=utf-8' });
    expect(String(reply.body)).toBe(PAGE);
    rmSync(path);
    expect(await ask(route)).toBe(reply);
  });

  it('responds with one line while the page is not built', async () => {
    const route = pageRoute(pathToFileURL(path));
    expect(await ask(route)).toEqual({
      status: 503,
      type: 'text/plain; charset=utf-8',
      body: 'the page is not built: run `npm run setup`\n',
    });
    writeFileSync(path, PAGE);
    expect(await ask(route)).toMatchObject({ status: 200 });
  });
});

describe('the policy of the page', () => {
  it('allows only this script and this style', () => {
    const policy = pagePolicy(PAGE).split('; ');
    expect(policy).toContain(`script-src ${hash('run(1)')}`);
    expect(policy).toContain(`style-src ${hash('a{}')}`);
    expect(pagePolicy(PAGE)).not.toMatch(/unsafe|eval|https?:|\*/);
  });

  it('allows the page to call only its own server, and forbids framing it', () => {
    const policy = pagePolicy(PAGE).split('; ');
    for (const rule of [
      "default-src 'none'",
      "connect-src 'self'",
      "base-uri 'none'",
      "form-action 'none'",
      "frame-ancestors 'none'",
      "require-trusted-types-for 'script'",
      "trusted-types 'none'",
    ]) {
      expect(policy).toContain(rule);
    }
  });

  it('allows nothing if the page has no script or style', () => {
    expect(pagePolicy('<p>')).toContain("script-src 'none'; style-src 'none'");
  });
});
