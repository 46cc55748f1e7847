/**
 * `/`: the page for people. It is one file with its script and style inside, made when the package
 * is built, and read once by the first who asks: the daemon is ready sooner, and no path of a
 * request reaches the disk.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type HttpRoute, type RouteReply, textReply } from './http-route.ts';

/** Where the build puts it, seen from `dist/daemon/http`. */
const PAGE = new URL('../page/bundle.html', import.meta.url);

/** The route. It tells nothing of the daemon, so it needs no token: what it asks for does. */
export function pageRoute(file: URL = PAGE): HttpRoute {
  let reply: RouteReply | undefined;
  return {
    method: 'GET',
    path: '/',
    summary: 'The page for people',
    produces: 'text/html',
    open: true,
    handle: async () => {
      reply ??= await readPage(file);
      return reply ?? textReply('the page is not built: run `npm run setup`\n', 503);
    },
  };
}

async function readPage(file: URL): Promise<RouteReply | undefined> {
  const html = await readFile(file, 'utf8').catch(() => undefined);
  if (html === undefined) return undefined;
  const headers = { 'content-security-policy': pagePolicy(html) };
  return { status: 200, type: 'text/html; charset=utf-8', body: Buffer.from(html), headers };
}

/**
 * What the page may do: run the script and the style that are in it and no other, ask its own
 * server, and nothing else. Text can never become markup or a program (Trusted Types).
 */
export function pagePolicy(html: string): string {
  const script = inlineHashes(html, /<script[^>]*>([\s\S]*?)<\/script>/g);
  const style = inlineHashes(html, /<style[^>]*>([\s\S]*?)<\/style>/g);
  return [
    "default-src 'none'",
    `script-src ${script}`,
    `style-src ${style}`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; ');
}

function inlineHashes(html: string, element: RegExp): string {
  const texts = [...html.matchAll(element)].map(([, text = '']) => text);
  const hashes = texts.map((text) => {
    return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
  });
  return hashes.length === 0 ? "'none'" : hashes.join(' ');
}
