/** Resolves the path of an import in a source. */
import { readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

interface Manifest {
  /** `#…`: the folder that each name stands for. */
  readonly imports: Readonly<Record<string, { readonly 'iwarpd-source': string }>>;
}

/** For the checkout at `root`: the file that `file` imports by `specifier`, both as paths from the root. */
export function importPaths(root: string): (file: string, specifier: string) => string {
  const { imports }: Manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  return (file, specifier) => {
    if (!specifier.startsWith('#')) return normalize(join(dirname(file), specifier));
    const [name = '', ...rest] = specifier.split('/');
    const place = imports[`${name}/*`]?.['iwarpd-source'] ?? '';
    return normalize(place.replace('*', rest.join('/')));
  };
}
