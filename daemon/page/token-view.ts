/** Asks for the token where the daemon wants one. */
import type { ApiClient } from './api-client.ts';
import { byId, setText } from './dom.ts';
import type { PageStore } from './page-state.ts';

/** Shows the form while it is needed; `tried` is called with a new token in place. */
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
      setText(error, wrong ? `Not this one: ${link.reason}` : '');
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
