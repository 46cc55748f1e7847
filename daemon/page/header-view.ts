/** The page header: the daemon, whether it responds, and why not. */
import type { DaemonStatus } from '#contract/protocol/ipc-admin';
import { byId, el, setText } from './dom.ts';
import type { PageLink, PageStore } from './page-state.ts';
import { duration } from './units.ts';

/** Shows the header and keeps it up to date. */
export function showHeader(store: PageStore): void {
  const facts = byId('daemon');
  const values = ['version', 'pid', 'uptime', 'CRC32C'].map((name) => {
    const value = el('dd', { text: '–' });
    facts.append(el('div', {}, [el('dt', { text: name }), value]));
    return value;
  });
  store.watch(
    ({ status }) => status,
    (status) => {
      const texts = status === undefined ? [] : factsOf(status);
      for (const [index, value] of values.entries()) setText(value, texts[index] ?? '–');
    },
  );
  const link = byId('link');
  store.watch(
    (state) => state.link,
    (state) => {
      link.className = `link ${state.phase}`;
      setText(link, LINK_TEXTS[state.phase]);
      // Grey out the page: its data is stale.
      document.body.classList.toggle('stale', state.phase === 'lost' || state.phase === 'denied');
    },
  );
  showNotice(store);
}

const LINK_TEXTS: Readonly<Record<PageLink['phase'], string>> = {
  connecting: 'connecting',
  live: 'live',
  paused: 'paused',
  lost: 'lost',
  denied: 'token needed',
};

function factsOf({ version, pid, uptimeSeconds, crcEngine }: DaemonStatus): readonly string[] {
  return [version, String(pid), duration(uptimeSeconds), crcEngine];
}

/** Shows one line above everything if there is something to report. */
function showNotice(store: PageStore): void {
  const notice = byId('notice');
  let first: DaemonStatus | undefined;
  store.watch(
    ({ link, status }) => {
      first ??= status;
      return noticeOf(link, first, status);
    },
    (text) => {
      notice.hidden = text === '';
      setText(notice, text);
    },
  );
}

function noticeOf(
  link: PageLink,
  first: DaemonStatus | undefined,
  status: DaemonStatus | undefined,
): string {
  if (link.phase === 'lost') {
    const since = new Date(link.since).toLocaleTimeString();
    const shown = status === undefined ? '' : ' The page shows the last known state.';
    return `No connection to the daemon since ${since}: ${link.reason}. Retrying every second.${shown}`;
  }
  if (first !== undefined && status !== undefined && first.version !== status.version) {
    return `The daemon is now version ${status.version}, this page ${first.version}: reload the page.`;
  }
  if (link.phase === 'live' && status?.ready === false)
    return 'The daemon is starting or stopping.';
  return '';
}
