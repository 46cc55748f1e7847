/** Debian's Chromium on the page of a daemon, offline, with its console recorded. */
import { readFileSync } from 'node:fs';
import {
  type Browser,
  type BrowserContext,
  chromium,
  type Locator,
  type Page,
} from 'playwright-core';
import type { HttpReady } from '#contract/protocol/ipc-admin';
import { pageLink } from '#daemon/cli/page-link';
import { madeToken } from '../support/http-token.ts';
import { patience } from '../support/patience.ts';

const CHROMIUM = '/usr/bin/chromium';

/** Time limit for the page's next update, made every second, on a busy machine. */
export const SHOWN_TIMEOUT_MS = patience(20_000);

interface PageOptions {
  readonly width?: number;
  readonly height?: number;
  readonly colorScheme?: 'light' | 'dark';
}

/** Starts the browser, which serves many pages. */
export async function launchBrowser(): Promise<Browser> {
  return await chromium.launch({
    executablePath: CHROMIUM,
    // The sandbox is unavailable in containers and for root; the page is our own.
    args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'],
  });
}

/** A page, with its own storage and cookies. */
export class PageRig {
  readonly page: Page;
  /** Addresses of requests to other hosts than the daemon; all are blocked. */
  readonly strayRequests: string[] = [];
  /** The page's requests to the daemon, as `GET /status`. */
  readonly requests: string[] = [];
  /** Complaints of the page and of the browser about it. */
  readonly complaints: string[] = [];
  readonly #context: BrowserContext;

  private constructor(context: BrowserContext, page: Page) {
    this.#context = context;
    this.page = page;
  }

  static async open(browser: Browser, url: string, options: PageOptions = {}): Promise<PageRig> {
    const { width = 1280, height = 800, colorScheme = 'light' } = options;
    const context = await browser.newContext({ viewport: { width, height }, colorScheme });
    const rig = new PageRig(context, await context.newPage());
    await rig.#listen(context, new URL(url).origin);
    await rig.page.goto(url);
    return rig;
  }

  /** The first element that a CSS selector finds. */
  first(selector: string): Locator {
    return this.page.locator(selector).first();
  }

  /** Waits until the element's text matches. */
  async shows(selector: string, text: RegExp, timeout = SHOWN_TIMEOUT_MS): Promise<void> {
    await this.page.locator(selector).filter({ hasText: text }).first().waitFor({ timeout });
  }

  /** Presses a button by its name. */
  async press(name: string): Promise<void> {
    await this.page.getByRole('button', { name, exact: true }).click({ timeout: SHOWN_TIMEOUT_MS });
  }

  async close(): Promise<void> {
    await this.#context.close();
  }

  async #listen(context: BrowserContext, origin: string): Promise<void> {
    await context.route('**/*', async (route) => {
      const request = route.request();
      const { origin: asked, pathname } = new URL(request.url());
      if (asked === origin) {
        this.requests.push(`${request.method()} ${pathname}`);
        await route.continue();
        return;
      }
      this.strayRequests.push(request.url());
      await route.abort();
    });
    this.page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') {
        this.complaints.push(message.text());
      }
    });
    this.page.on('pageerror', (error) => this.complaints.push(error.message));
  }
}

/** The link to the page of the daemon at a socket, with the token if the daemon made it. */
export function pageOf(socket: string): string {
  const { http } = JSON.parse(readFileSync(`${socket}.run`, 'utf8')) as { http?: HttpReady };
  if (http === undefined) throw new Error('the daemon has no HTTP');
  const token = http.tokenFile === undefined ? '' : madeToken(socket);
  return pageLink(http, token === '' ? undefined : token);
}
