/** What `iwarpd run` and real devices need of the machine: the preload library, and rdma-core. */
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import type { Check, Finding } from './doctor-checks.ts';
import { failureText } from './failure.ts';
import { checkShim, SHIM_MEND, SHIM_PATH } from './shim-environment.ts';

const LIBRARY_FOLDERS = ['/usr/lib', '/usr/lib64', '/usr/local/lib', '/lib', '/lib64'];
/** Debian keeps libraries in a folder for each architecture. */
const MULTIARCH: Readonly<Record<string, string>> = {
  x64: 'x86_64-linux-gnu',
  arm64: 'aarch64-linux-gnu',
};
const INSTALL = 'apt-get install ibverbs-providers librdmacm1, or what your system calls them';

/** The checks, in the order in which they are shown. */
export const RDMA_CORE_CHECKS: readonly Check[] = [
  { name: 'preload', examine: examineShim },
  { name: 'rdma-core', examine: () => judgeLibraries(libraryFolders().flatMap(listed)) },
  { name: 'siw provider', examine: examineProvider },
];

function examineShim(): Finding {
  try {
    checkShim(SHIM_PATH, existsSync(SHIM_PATH));
    return { state: 'ok', text: 'the library of `iwarpd run` is built' };
  } catch (error) {
    if (existsSync(SHIM_PATH)) return { state: 'warn', text: failureText(error) };
    return {
      state: 'warn',
      text: 'the library of `iwarpd run` is not built, so that unmodified programs cannot be run',
      mend: SHIM_MEND,
    };
  }
}

/** Judges the real file names in the folders of libraries: which rdma-core there is. */
export function judgeLibraries(names: readonly string[]): Finding {
  const verbs = releaseOf(names, 'libibverbs.so.1');
  const cm = releaseOf(names, 'librdmacm.so.1');
  if (verbs === undefined && cm === undefined) {
    return {
      state: 'info',
      text: 'not installed; only `iwarpd run` and real devices need it',
      mend: INSTALL,
    };
  }
  if (verbs === undefined || cm === undefined) {
    const lacking = verbs === undefined ? 'libibverbs' : 'librdmacm';
    return { state: 'warn', text: `${lacking} is missing`, mend: INSTALL };
  }
  if (verbs !== cm) {
    const text = `libibverbs is of release ${verbs}, librdmacm of ${cm}`;
    return { state: 'warn', text, mend: 'install both from the same release of rdma-core' };
  }
  return { state: 'ok', text: `release ${verbs}: libibverbs and librdmacm` };
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

/** The provider's driver file names the library, which has to be there under the release's suffix. */
function examineProvider(): Finding {
  const driver = existsSync('/etc/libibverbs.d/siw.driver');
  const folders = libraryFolders().map((folder) => join(folder, 'libibverbs'));
  const libraries = folders.flatMap(listed).filter((name) => /^libsiw-rdmav.*\.so$/.test(name));
  return judgeProvider(driver, libraries);
}

/** Judges whether the driver file is there, and which provider libraries are. */
export function judgeProvider(driver: boolean, libraries: readonly string[]): Finding {
  const [library] = libraries;
  if (driver && library !== undefined) return { state: 'ok', text: library };
  const text = driver
    ? 'its library is missing: programs would see no device'
    : 'libibverbs does not know it: programs would see no device';
  return { state: 'warn', text, mend: 'apt-get install ibverbs-providers' };
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

/** Names in a folder; none when it is not there. */
function listed(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}
