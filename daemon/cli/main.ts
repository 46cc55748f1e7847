#!/usr/bin/env node
/**
 * Entry point of the `iwarpd` command. Node needs most of a start to load modules, so the command
 * is also bundled into a few files, by `bundler/`. Without them, or if anything was compiled since,
 * the modules run as compiled, as they do for `start`.
 */
import { readFileSync, statSync } from 'node:fs';

const BUNDLE = '../command/command.js';
/** Names what the compiler writes whenever it compiles; absent in a package, where nothing does. */
const COMPILED = '../command/compiled.json';

/** Modification time, in milliseconds; `missing` for a file that is not there. */
function modified(path: string, missing: number): number {
  const found = statSync(new URL(path, import.meta.url), { throwIfNoEntry: false });
  return found?.mtimeMs ?? missing;
}

/** Paths relative to this folder. */
function compiled(): readonly string[] {
  if (modified(COMPILED, 0) === 0) return [];
  return JSON.parse(readFileSync(new URL(COMPILED, import.meta.url), 'utf8'));
}

/** A daemon that serves for days: NULL calls of RPC over RDMA are a fifth slower in bundled code. */
const SERVES = process.argv[2] === 'start';

function isCurrent(): boolean {
  const bundled = modified(BUNDLE, 0);
  // A project that is gone was part of another build.
  return bundled > 0 && compiled().every((path) => modified(path, Infinity) <= bundled);
}

await import(!SERVES && isCurrent() ? BUNDLE : './command.ts');
