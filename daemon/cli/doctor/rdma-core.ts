/** Checks for the requirements of `iwarpd run` and real devices: the preload library and rdma-core. */
import { existsSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { failureText } from '#daemon/console/failure';
import { PRELOAD_FIX, preloadPath } from '#daemon/console/preload-library';
import { checkShim } from '#daemon/console/shim-environment';
import { listed } from './devices.ts';
import { type Check, type Finding, info, ok, warn } from './finding.ts';

const LIBRARY_FOLDERS = ['/usr/lib', '/usr/lib64', '/usr/local/lib', '/lib', '/lib64'];
/** Debian has a library directory per architecture. */
const MULTIARCH: Readonly<Record<string, string>> = {
  x64: 'x86_64-linux-gnu',
  arm64: 'aarch64-linux-gnu',
};
const INSTALL =
  'apt-get install ibverbs-providers librdmacm1, or the packages of your distribution';

/** The checks, in the order of the report. */
export const RDMA_CORE_CHECKS: readonly Check[] = [
  { name: 'preload', examine: examineShim },
  { name: 'rdma-core', examine: () => judgeLibraries(libraryFolders().flatMap(listed)) },
  { name: 'siw provider', examine: () => examineProvider('siw') },
  { name: 'rxe provider', examine: () => examineProvider('rxe') },
];

function examineShim(): Finding {
  try {
    checkShim(preloadPath(), existsSync(preloadPath()));
    return ok('the preload library of `iwarpd run` is installed');
  } catch (error) {
    if (existsSync(preloadPath())) return warn(failureText(error));
    return warn('no preload library for this machine: `iwarpd run` does not work', PRELOAD_FIX);
  }
}

/** Judges the installed rdma-core by the file names in the library directories. */
export function judgeLibraries(names: readonly string[]): Finding {
  const verbs = releaseOf(names, 'libibverbs.so.1');
  const cm = releaseOf(names, 'librdmacm.so.1');
  if (verbs === undefined && cm === undefined) {
    return info('not installed; only `iwarpd run` and real devices need it', INSTALL);
  }
  if (verbs === undefined || cm === undefined) {
    const lacking = verbs === undefined ? 'libibverbs' : 'librdmacm';
    return warn(`${lacking} is missing`, INSTALL);
  }
  if (verbs !== cm) {
    const text = `libibverbs is release ${verbs}, but librdmacm is ${cm}`;
    return warn(text, 'install both from the same release of rdma-core');
  }
  return ok(`release ${verbs}: libibverbs and librdmacm`);
}

/** The release in a name such as `libibverbs.so.1.14.44.0`. */
function releaseOf(names: readonly string[], library: string): string | undefined {
  const pattern = new RegExp(`^${library.replaceAll('.', '\\.')}\\.[0-9]+\\.([0-9]+\\.[0-9]+)$`);
  for (const name of names) {
    const release = pattern.exec(name)?.[1];
    if (release !== undefined) return release;
  }
  return undefined;
}

/** The devices that programs see through a provider of rdma-core. */
const SEEN_BY_PROVIDER = { siw: 'iWARP device', rxe: 'RoCE device' } as const;

/** The provider's driver file names a library, which must exist with the suffix of the release. */
function examineProvider(provider: keyof typeof SEEN_BY_PROVIDER): Finding {
  const driver = existsSync(`/etc/libibverbs.d/${provider}.driver`);
  const folders = libraryFolders().map((folder) => join(folder, 'libibverbs'));
  const library = new RegExp(`^lib${provider}-rdmav.*\\.so$`);
  const libraries = folders.flatMap(listed).filter((name) => library.test(name));
  return judgeProvider(driver, libraries, SEEN_BY_PROVIDER[provider]);
}

/** Judges whether driver file and provider library exist. */
export function judgeProvider(
  driver: boolean,
  libraries: readonly string[],
  devices: string,
): Finding {
  const [library] = libraries;
  if (driver && library !== undefined) return ok(library);
  const text = driver
    ? `its library is missing: programs see no ${devices}`
    : `libibverbs does not know it: programs see no ${devices}`;
  return warn(text, 'apt-get install ibverbs-providers');
}

function libraryFolders(): string[] {
  const multiarch = MULTIARCH[process.arch];
  const folders = LIBRARY_FOLDERS.flatMap((folder) => {
    return multiarch === undefined ? [folder] : [folder, join(folder, multiarch)];
  });
  // `/lib` is a link to `/usr/lib` on most systems.
  return [
    ...new Set(folders.filter((folder) => existsSync(folder)).map((each) => realpathSync(each))),
  ];
}
