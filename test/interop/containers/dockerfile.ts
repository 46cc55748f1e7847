/**
 * `docker/Dockerfile` without a builder: its instructions, one by one, in plain root file systems.
 *
 * This proves that every RUN and COPY works on Debian with Node; there are no layers and no
 * isolation but chroot, and instructions about the image (CMD, HEALTHCHECK …) are only collected.
 */
import { readFileSync } from 'node:fs';
import { cp, mkdir } from 'node:fs/promises';
import { join } from 'node:path';

/** An instruction of a Dockerfile with all that follows it. */
interface Instruction {
  readonly name: string;
  /** The rest, continued lines joined, comments dropped. */
  readonly text: string;
}

/** From one FROM to the next. */
export interface Stage {
  readonly name: string | undefined;
  readonly instructions: readonly Instruction[];
}

/** The stages of a Dockerfile, without the ARGs before the first. */
export function readStages(file: string): Stage[] {
  const stages: { name: string | undefined; instructions: Instruction[] }[] = [];
  for (const instruction of instructions(readFileSync(file, 'utf8'))) {
    if (instruction.name === 'FROM') {
      const [, name] = / AS (\S+)$/i.exec(instruction.text) ?? [];
      stages.push({ name, instructions: [] });
    } else {
      stages.at(-1)?.instructions.push(instruction);
    }
  }
  return stages;
}

function instructions(text: string): Instruction[] {
  const lines = text.split('\n').filter((line) => !/^\s*#/.test(line));
  const joined = lines.join('\n').replace(/\\\n/g, '').split('\n');
  return joined.flatMap((line) => {
    const [, name, rest] = /^\s*([A-Z]+)\s+(.*\S)\s*$/.exec(line) ?? [];
    return name === undefined || rest === undefined ? [] : [{ name, text: rest }];
  });
}

/** Executes the instructions of a stage, in order. */
interface StageRunner {
  /** Root file system of this stage. */
  readonly root: string;
  /** Root file systems of the stages before it, by name. */
  readonly earlier: ReadonlyMap<string, string>;
  /** Copies the checkout, without files that .dockerignore names, to a path. */
  copyContext(target: string): Promise<void>;
  /** Runs a shell command in the root file system; rejects when it fails. */
  shell(command: string, directory: string): Promise<void>;
}

/** Executes a stage; returns its number of RUN steps. */
export async function runStage(stage: Stage, runner: StageRunner): Promise<number> {
  let directory = '/';
  let runs = 0;
  for (const { name, text } of stage.instructions) {
    switch (name) {
      case 'RUN':
        await runner.shell(text, directory);
        runs += 1;
        break;
      case 'COPY':
        await copy(text, directory, runner);
        break;
      case 'WORKDIR':
        directory = text;
        await mkdir(join(runner.root, directory), { recursive: true });
        break;
      case 'LABEL':
      case 'ENV':
      case 'USER':
      case 'STOPSIGNAL':
      case 'HEALTHCHECK':
      case 'ENTRYPOINT':
      case 'CMD':
        break;
      default:
        throw new Error(`this Dockerfile has an instruction ${name}, which is not known here`);
    }
  }
  return runs;
}

async function copy(text: string, directory: string, runner: StageRunner): Promise<void> {
  const [, stage, sources = text] = /^--from=(\S+)\s+(.*)$/.exec(text) ?? [];
  if (stage === undefined) {
    if (sources !== '. .') throw new Error(`COPY ${text} is not known here`);
    await runner.copyContext(join(runner.root, directory));
    return;
  }
  const from = runner.earlier.get(stage);
  if (from === undefined) throw new Error(`there is no stage ${stage}`);
  const names = sources.split(/\s+/);
  const target = names.pop() ?? '';
  for (const source of names) {
    // Copy a directory's contents, or a file into a target that ends with a slash.
    const place = target.endsWith('/') ? join(target, source.split('/').at(-1) ?? '') : target;
    const options = { recursive: true, verbatimSymlinks: true };
    await cp(join(from, source), join(runner.root, place), options);
  }
}
