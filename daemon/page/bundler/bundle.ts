/**
 * Bundles the page into one file, HTML with inline style and script. A single response contains
 * everything, and its security policy identifies style and script by hash.
 */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

/** The page's source folder, relative to `dist/daemon/page/bundler`. */
const SOURCES = new URL('../../../../daemon/page/', import.meta.url);
const MODULES = new URL('../../../../node_modules/', import.meta.url);

/** Style sheets; later ones override earlier ones. */
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

/** The bundled page. Throws if a source is missing or does not parse. */
export async function bundlePage(): Promise<string> {
  const shell = readFileSync(new URL('page.html', SOURCES), 'utf8');
  const plotStyle = readFileSync(new URL('uplot/dist/uPlot.min.css', MODULES), 'utf8');
  const styles = STYLES.map((name) => readFileSync(new URL(`style/${name}.css`, SOURCES), 'utf8'));
  const style = [plotStyle, ...styles].join('\n');
  // The license must accompany the library.
  const license = readFileSync(new URL('uplot/LICENSE', MODULES), 'utf8').trim();
  const script = `/*! uPlot:\n${license} */\n${await bundleScript()}`;
  return [
    ['<style></style>', `<style>${squeezed(style)}</style>`],
    ['<script></script>', `<script type="module">${script}</script>`],
  ].reduce((html, [place = '', content = '']) => {
    if (!html.includes(place)) throw new Error(`page.html has no ${place}`);
    // A function, since `$` is special in a replacement string.
    return html.replace(place, () => content);
  }, shell);
}

async function bundleScript(): Promise<string> {
  const bundle = await rolldown({
    input: fileURLToPath(new URL('main.ts', SOURCES)),
    platform: 'browser',
    tsconfig: false,
    resolve: { conditionNames: ['iwarpd-source', 'import', 'default'] },
    onLog: (level, log) => {
      if (level === 'warn') throw new Error(log.message);
    },
  });
  const { output } = await bundle.generate({ format: 'es', minify: true });
  await bundle.close();
  const [chunk, ...others] = output;
  if (others.length > 0) throw new Error('the script is to be one piece');
  // In HTML a script ends at the first `</script`, even in a string.
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
