/**
 * Takes the picture of the page that the README shows: a daemon with two devices, rping between them,
 * the time line recorded for a while, one Send of it chosen, and a fault that has not happened.
 * Arguments: the file to write.
 */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { CommandFolder } from '../e2e/cli-process.ts';
import { httpOf, launchBrowser, PageRig } from './page-rig.ts';

const PORT = '7174';
/** How long the plots fill. */
const TRAFFIC_MS = 45_000;

const [, , file] = process.argv;
if (file === undefined) throw new Error('name the file to write');
const folder = new CommandFolder();
const browser = await launchBrowser();
try {
  const socket = folder.file('iwarpd.sock');
  const devices = ['--device', 'left=127.0.0.2', '--device', 'right=127.0.0.3'];
  await folder.daemon(socket, [...devices, '--http', '127.0.0.1:0']);
  const url = httpOf(readFileSync(`${socket}.run`, 'utf8'));
  const rig = await PageRig.open(browser, url, { width: 1280, height: 1040 });
  await rig.shows('#link', /^live$/);
  const ping = (side: string, address: string, more: readonly string[] = []) =>
    folder.start(['rping', side, '-a', address, '-p', PORT, ...more, '--socket', socket]);
  ping('-s', '127.0.0.2');
  await sleep(1000);
  ping('-c', '127.0.0.2', ['-S', '16384', '-C', '100000000']);
  await sleep(TRAFFIC_MS);
  for (const card of await rig.page.locator('.device summary').all()) await card.click();
  const record = rig.page.getByRole('switch', { name: 'Record' });
  await record.check();
  await rig.first('.mark.cqe').waitFor();
  await record.uncheck();
  await sleep(1500);
  await rig.page.getByRole('listbox').focus();
  for (const key of ['End', ...Array<string>(14).fill('ArrowLeft')]) {
    await rig.page.keyboard.press(key);
  }
  await sleep(1500);
  await rig.page.mouse.wheel(0, -10_000);
  await rig.page.screenshot({ path: file });
} finally {
  await browser.close();
  await folder.clean();
}
