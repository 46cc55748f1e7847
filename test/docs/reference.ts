/** The API reference as Markdown: a page per entry point, and the names without a docstring. */
import type { EntryPoint, PublicName } from '../support/public-names.ts';

/** Names and members without a docstring, with the place of their declaration. */
export function undocumented(entries: readonly EntryPoint[]): string[] {
  const lines = entries.flatMap(({ names }) =>
    names.flatMap(({ name, doc, source, undocumented: members }) =>
      [...(doc === '' ? [name] : []), ...members].map((missing) => `${source}: ${missing}`),
    ),
  );
  return [...new Set(lines)].sort();
}

/** The file name of an entry point's page. */
export function pageName(specifier: string): string {
  return `${specifier.replaceAll('/', '-')}.md`;
}

/** The page that links to all others. */
export function indexPage(entries: readonly EntryPoint[]): string {
  const rows = entries.map(({ specifier, doc, names }) => {
    const [first = ''] = doc.split('\n\n');
    return `## [${specifier}](${pageName(specifier)})\n\n${first}\n\n${names.length} names.`;
  });
  return `# API reference\n\n${rows.join('\n\n')}\n`;
}

export function entryPage({ specifier, doc, names }: EntryPoint): string {
  const known = new Set(names.map(({ name }) => name));
  const contents = names.map(({ name }) => `[${name}](#${anchor(name)})`).join(' · ');
  const sections = names.map((each) => section(each, known));
  return `# ${specifier}\n\n${doc}\n\n${contents}\n\n${sections.join('\n')}`;
}

function section(each: PublicName, known: ReadonlySet<string>): string {
  const used = new Set(each.code.match(/\b[A-Z]\w+\b/g)?.filter((name) => known.has(name)));
  used.delete(each.name);
  const links = [...used].sort().map((name) => `[${name}](#${anchor(name)})`);
  const see = links.length === 0 ? '' : `See ${links.join(', ')}. `;
  const imported = each.exported ? '' : 'Programs cannot import the name. ';
  const code = `\`\`\`ts\n${each.code}\n\`\`\``;
  return `## ${each.name}\n\n${each.doc}\n\n${code}\n\n${see}${imported}Declared at \`${each.source}\`.\n`;
}

/** The anchor of a heading, as GitHub makes it. */
function anchor(name: string): string {
  return name.toLowerCase();
}
