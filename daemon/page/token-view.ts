/** Asks for the token if the daemon requires one. */
import type { ApiClient } from './api-client.ts';
import { byId, setText } from './dom.ts';
import type { PageStore } from './page-state.ts';

/**
 * Takes the token from the fragment of the `iwarpd page` link and removes it from the address: a
 * browser never sends the fragment, but stores it in its history. Returns whether there was one.
 */
export function takeTokenOfLink(
  api: Pick<ApiClient, 'token'>,
  place: Pick<Location, 'hash' | 'pathname'>,
  kept: Pick<History, 'replaceState'>,
): boolean {
  const token = new URLSearchParams(place.hash.slice(1)).get('token');
  if (token === null || token === '') return false;
  api.token = token;
  kept.replaceState(null, '', place.pathname);
  return true;
}

/** Shows the form while it is needed; calls `tried` when a new token is set. */
export function showTokenForm(store: PageStore, api: ApiClient, tried: () => void): void {
  const form = byId('token-form');
  const input = byId('token');
  const main = byId('main');
  const error = byId('token-error');
  if (!(input instanceof HTMLInputElement)) throw new Error('the token has no field');
  store.watch(
    ({ link }) => link,
    (link) => {
      const denied = link.phase === 'denied';
      if (denied && form.hidden) input.focus();
      form.hidden = !denied;
      // Without a token there is nothing to show.
      main.hidden = denied && store.state.status === undefined;
      if (!denied) return;
      const wrong = api.token !== undefined;
      api.token = undefined;
      setText(error, wrong ? `Token rejected: ${link.reason}` : '');
      input.focus();
    },
  );
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    api.token = input.value.trim();
    input.value = '';
    tried();
  });
}
