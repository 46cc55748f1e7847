/** `docker/github-actions.yaml` as a value, and its steps as a runner executes them. */
import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { z } from 'zod';

const texts = z.record(z.string(), z.union([z.string(), z.number()]));
const step = z.union([
  z.strictObject({
    name: z.string().optional(),
    if: z.literal('failure()').optional(),
    uses: z.string().regex(/^[\w-]+\/[\w-]+@v\d+$/),
    with: texts.optional(),
  }),
  z.strictObject({ name: z.string(), run: z.string(), env: texts.optional() }),
]);
const workflow = z.strictObject({
  name: z.string(),
  on: z.array(z.enum(['push', 'pull_request'])).nonempty(),
  jobs: z.record(
    z.string(),
    z.strictObject({ 'runs-on': z.string(), steps: z.array(step).nonempty() }),
  ),
});

interface RunStep {
  readonly name: string;
  readonly run: string;
  readonly env: Readonly<Record<string, string>>;
}

/** The steps of the one job of a workflow. */
interface WorkflowSteps {
  /** Actions, in order; only GitHub's runner can execute them. */
  readonly uses: readonly string[];
  readonly runs: readonly RunStep[];
}

/** Reads a workflow; `variables` are the repository's. Throws with the field that is wrong. */
export function readWorkflow(
  file: string,
  variables: Readonly<Record<string, string>>,
): WorkflowSteps {
  const parsed = workflow.safeParse(parse(readFileSync(file, 'utf8')));
  if (!parsed.success) throw new Error(z.prettifyError(parsed.error));
  const [job, ...others] = Object.values(parsed.data.jobs);
  if (job === undefined || others.length > 0) throw new Error('not exactly one job');
  const uses = job.steps.flatMap((each) => ('uses' in each ? [each.uses] : []));
  const runs = job.steps.flatMap((each) => {
    if (!('run' in each)) return [];
    const env = Object.entries(each.env ?? {}).map(([key, value]) => [
      key,
      expand(String(value), variables),
    ]);
    return [{ name: each.name, run: each.run, env: Object.fromEntries(env) }];
  });
  return { uses, runs };
}

/** Replaces expressions by the repository's variables; throws for any other expression. */
function expand(text: string, variables: Readonly<Record<string, string>>): string {
  return text.replace(/\$\{\{\s*(.*?)\s*\}\}/g, (_, expression: string) => {
    const [, key = ''] = /^vars\.(\w+)$/.exec(expression) ?? [];
    const value = variables[key];
    if (value === undefined) throw new Error(`nothing known of ${expression}`);
    return value;
  });
}
