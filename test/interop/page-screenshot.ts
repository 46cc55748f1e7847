/**
 * Takes the picture of the page that the README shows: a daemon with two devices, rping between them,
 * and the time line recorded for a while, with one work request of it chosen.
 * Arguments: the file to write.
 */
import { writeFileSync } from 'node:fs';
import { CommandFolder } from '../support/cli-process.ts';
import { quiet } from '../support/patience.ts';
import { launchBrowser, PageRig, pageOf } from './page-rig.ts';
import { withPalette } from './palette-png.ts';

const PORT = '7174';
const WIDTH = 1100;
/** How long traffic runs to fill the plots. */
const TRAFFIC_MS = 45_000;

const [, , file] = process.argv;
if (file === undefined) throw new Error('name the file to write');
const folder = new CommandFolder();
const browser = await launchBrowser();
try {
  const socket = folder.file('iwarpd.sock');
  const devices = ['--device', 'left=127.0.0.2', '--device', 'right=127.0.0.3'];
  await folder.daemon(socket, [...devices, '--http', '127.0.0.1:0']);
  const url = pageOf(socket);
  const rig = await PageRig.open(browser, url, { width: WIDTH, height: 1100 });
  await rig.shows('#link', /^live$/);
  const ping = (side: string, address: string, more: readonly string[] = []) =>
    folder.start(['rping', side, '-a', address, '-p', PORT, ...more, '--socket', socket]);
  ping('-s', '127.0.0.2');
  await quiet(1000);
  ping('-c', '127.0.0.2', ['-I', '127.0.0.3', '-S', '16384', '-C', '100000000']);
  await quiet(TRAFFIC_MS);
  for (const card of await rig.page.locator('.device summary').all()) await card.click();
  const record = rig.page.getByRole('switch', { name: 'Record' });
  await record.check();
  await rig.first('.mark.cqe').waitFor();
  await record.uncheck();
  await quiet(1500);
  await rig.page.getByRole('listbox').focus();
  // The last Read of the upper lane whose records are all there, at its work request.
  const detail = rig.page.locator('.detail');
  const chosen = detail.locator('li.chosen');
  for (const key of ['End', 'ArrowUp']) await rig.page.keyboard.press(key);
  for (let steps = 0; steps < 90; steps += 1) {
    const text = (await detail.textContent()) ?? '';
    const isWhole = /WQE RDMA_READ.*Read Response.*CQE RDMA_READ/.test(text);
    if (isWhole && (await chosen.textContent())?.includes('WQE') === true) break;
    await rig.page.keyboard.press('ArrowLeft');
  }
  await quiet(1500);
  await rig.page.mouse.wheel(0, -10_000);
  const bottom = await rig.page.locator('.detail ol').boundingBox();
  const height = Math.ceil((bottom?.y ?? 0) + (bottom?.height ?? 0)) + 16;
  const clip = { x: 0, y: 0, width: WIDTH, height };
  writeFileSync(file, withPalette(await rig.page.screenshot({ clip })));
} finally {
  await browser.close();
  await folder.clean();
}
