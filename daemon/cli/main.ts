#!/usr/bin/env node
/**
 * Entry point of the `iwarpd` command. Loading modules takes most of Node's start, so the command is
 * also bundled into a few files, by `bundler/`. The compiled modules run instead if there is no
 * bundle, or if anything was compiled since.
 */
import { readFileSync, statSync } from 'node:fs';

const BUNDLE = '../command/command.js';
/** Lists files that the compiler writes with every build; absent in a package, where nothing compiles. */
const COMPILED = '../command/compiled.json';

/** Modification time, in milliseconds; `missing` if the file does not exist. */
function modified(path: string, missing: number): number {
  const found = statSync(new URL(path, import.meta.url), { throwIfNoEntry: false });
  return found?.mtimeMs ?? missing;
}

/** Paths relative to this folder. */
function compiled(): readonly string[] {
  if (modified(COMPILED, 0) === 0) return [];
  return JSON.parse(readFileSync(new URL(COMPILED, import.meta.url), 'utf8'));
}

function isCurrent(): boolean {
  const bundled = modified(BUNDLE, 0);
  // A listed project that no longer exists makes the bundle out of date.
  return bundled > 0 && compiled().every((path) => modified(path, Infinity) <= bundled);
}

await import(isCurrent() ? BUNDLE : './command.ts');
