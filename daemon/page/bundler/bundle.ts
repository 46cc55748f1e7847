/**
 * Makes the page one file: HTML with its style and its script inside, so that one answer of the
 * server is all of it and the policy that goes with it names both by their hashes.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

/** The folder of the page's sources, seen from `dist/daemon/page/bundler`. */
const SOURCES = new URL('../../../../daemon/page/', import.meta.url);
const MODULES = new URL('../../../../node_modules/', import.meta.url);

/** Style sheets; where two say something of one element, the later one wins. */
const STYLES = [
  'theme',
  'frame',
  'devices',
  'objects',
  'timeline',
  'faults',
  'questions',
  'narrow',
] as const;

/** The page. Throws when a source is missing or does not parse. */
export async function bundlePage(): Promise<string> {
  const shell = readFileSync(new URL('page.html', SOURCES), 'utf8');
  const plotStyle = readFileSync(new URL('uplot/dist/uPlot.min.css', MODULES), 'utf8');
  const styles = STYLES.map((name) => readFileSync(new URL(`style/${name}.css`, SOURCES), 'utf8'));
  const style = [plotStyle, ...styles].join('\n');
  // Its license goes wherever it goes.
  const license = readFileSync(new URL('uplot/LICENSE', MODULES), 'utf8').trim();
  const script = `/*! uPlot:\n${license} */\n${await bundleScript()}`;
  return [
    ['<style></style>', `<style>${squeezed(style)}</style>`],
    ['<script></script>', `<script type="module">${script}</script>`],
  ].reduce((html, [place = '', content = '']) => {
    if (!html.includes(place)) throw new Error(`page.html has no ${place}`);
    // A function, since `$` means something in a text that replaces.
    return html.replace(place, () => content);
  }, shell);
}

async function bundleScript(): Promise<string> {
  const bundle = await rolldown({
    input: fileURLToPath(new URL('main.ts', SOURCES)),
    platform: 'browser',
    tsconfig: false,
    onLog: (level, log) => {
      if (level === 'warn') throw new Error(log.message);
    },
  });
  const { output } = await bundle.generate({ format: 'es', minify: true });
  await bundle.close();
  const [chunk, ...others] = output;
  if (others.length > 0) throw new Error('the script is to be one piece');
  // Within HTML a script ends at the first of these, be it in a string.
  return chunk.code.replaceAll('</script', '<\\/script').trim();
}

/** Style without comments and indentation. */
function squeezed(style: string): string {
  return style
    .replace(/\/\*[\s\S]*?\*\//g, '')
    .replace(/\s+/g, ' ')
    .replace(/ ?([{};,]) ?/g, '$1')
    .trim();
}
