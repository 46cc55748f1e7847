/** Assembles the page. */
import { ApiClient } from './api-client.ts';
import { showDevices } from './devices-view.ts';
import { showFaults } from './faults-view.ts';
import { showHeader } from './header-view.ts';
import { showObjects } from './objects-view.ts';
import { newPageStore } from './page-state.ts';
import { Poller } from './poller.ts';
import { RateHistory } from './rates.ts';
import { Recorder } from './recorder.ts';
import { showRefusals } from './refusals-view.ts';
import { showReset } from './reset-view.ts';
import { showTimeline } from './timeline-view.ts';
import { showTokenForm, takeTokenOfLink } from './token-view.ts';

const store = newPageStore();
const api = new ApiClient();
takeTokenOfLink(api, location, history);
const rates = new RateHistory();
showHeader(store);
showDevices(store, rates);
showTimeline(store);
showObjects(store);
showRefusals(store);
const poller = new Poller(store, api, rates);
const look = (): void => poller.lookNow();
showFaults(store, api, look);
showReset(store, api, look);
showTokenForm(store, api, look);
// The token link was opened in a tab that already shows the page.
addEventListener('hashchange', () => {
  if (takeTokenOfLink(api, location, history)) look();
});
new Recorder(store, api);
