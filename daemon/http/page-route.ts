/**
 * `/`: the web page. A single file with its script and style inline, generated when the package is
 * built. It is read once, on the first request: this keeps daemon startup fast, and no request path
 * reaches the disk.
 */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type HttpRoute, type RouteReply, textReply } from './http-route.ts';

/** The build's output, relative to `dist/daemon/http`. */
const PAGE = new URL('../page/bundle.html', import.meta.url);

/**
 * The route. It needs no token, since it reveals nothing about the daemon: the page's requests do.
 */
export function pageRoute(file: URL = PAGE): HttpRoute {
  let reply: RouteReply | undefined;
  return {
    method: 'GET',
    path: '/',
    summary: 'The web page',
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
 * The page's content security policy: it may run only its inline script and style and connect only
 * to its own server. Text can never become markup or code (Trusted Types).
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
