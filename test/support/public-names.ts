/**
 * The names that the package exports, with their declarations and docstrings. The compiler's own
 * interface reads them from the sources of package.json's `exports`.
 */
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { type Node, SyntaxKind } from 'typescript/unstable/ast';
import {
  isBlock,
  isClassDeclaration,
  isConstructorDeclaration,
  isExpressionWithTypeArguments,
  isFunctionDeclaration,
  isGetAccessorDeclaration,
  isInterfaceDeclaration,
  isMethodDeclaration,
  isMethodSignatureDeclaration,
  isPropertyDeclaration,
  isPropertySignatureDeclaration,
  isSetAccessorDeclaration,
  isTypeReferenceNode,
} from 'typescript/unstable/ast/is';
import { API, type Project } from 'typescript/unstable/sync';

/** A name that programs can import, or that the signature of such a name mentions. */
export interface PublicName {
  readonly name: string;
  /** The docstrings of its declarations; empty without any. */
  readonly doc: string;
  /** Its declarations without bodies, with the docstrings of members as comments. */
  readonly code: string;
  /** File below the root, and line. */
  readonly source: string;
  /** Its functions and methods that take arguments: `connect`, `QP.modify`, `new RpcService`. */
  readonly calls: readonly string[];
  /** Members without a docstring. */
  readonly undocumented: readonly string[];
  /** False for a type that only signatures of others name. */
  readonly exported: boolean;
}

/** The names of one of the `exports` in package.json. */
export interface EntryPoint {
  /** Modules that programs import from. */
  readonly specifier: string;
  /** The source file, below the root. */
  readonly file: string;
  /** The comment at the head of the file. */
  readonly doc: string;
  /** Sorted by name. */
  readonly names: readonly PublicName[];
}

interface Manifest {
  readonly name: string;
  /** A string is a file that is no module: package.json. */
  readonly exports: Readonly<Record<string, { readonly types: string } | string>>;
}

export function entryPoints(root: string): EntryPoint[] {
  const manifest: Manifest = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const api = new API({ cwd: root });
  try {
    const found = Object.entries(manifest.exports).flatMap(([path, entry]) => {
      if (typeof entry === 'string') return [];
      const file = entry.types.replace(/^\.\/dist\//, '').replace(/\.d\.ts$/, '.ts');
      return { specifier: join(manifest.name, path), file, names: namesOf(api, root, file) };
    });
    const exported = new Set(found.flatMap(({ names }) => names.map(({ name }) => name)));
    return found.map(({ specifier, file, names }) => {
      const named = namedBy(api, root, file, exported);
      const all = [...names, ...named].sort((a, b) => a.name.localeCompare(b.name, 'en'));
      return { specifier, file, doc: headOf(join(root, file)), names: all };
    });
  } finally {
    api.close();
  }
}

/** The exports of a source file. `file` is below `root` and belongs to a project there. */
function namesOf(api: API, root: string, file: string): PublicName[] {
  const path = join(root, file);
  const snapshot = api.updateSnapshot({ openFiles: [path] });
  const project = snapshot.getDefaultProjectForFile(path);
  const module = project?.program.getSourceFile(path);
  const symbol = module && project?.checker.getSymbolAtLocation(module);
  if (project === undefined || symbol === undefined) throw new Error(`${file} exports nothing`);
  const exports = project.checker.getExportsOfModule(symbol);
  const isPublicName = new Set(exports.map(({ name }) => name));
  return exports
    .map((exported) => {
      const nodes = declarationsOf(project, exported);
      const bases = nodes.flatMap((node) => basesOf(project, node));
      const hidden = bases.filter(({ name }) => !isPublicName.has(name));
      const all = [...nodes, ...hidden.flatMap((base) => base.nodes)];
      return nameOf(root, exported.name, all, true);
    })
    .sort((a, b) => a.name.localeCompare(b.name, 'en'));
}

/** Types in the sources that exports of `file` name, directly or not, but that `exported` lacks. */
function namedBy(
  api: API,
  root: string,
  file: string,
  exported: ReadonlySet<string>,
): PublicName[] {
  const path = join(root, file);
  const project = api.updateSnapshot({ openFiles: [path] }).getDefaultProjectForFile(path);
  const module = project?.program.getSourceFile(path);
  const symbol = module && project?.checker.getSymbolAtLocation(module);
  if (project === undefined || symbol === undefined) return [];
  const found = new Map<string, PublicName>();
  const due = project.checker
    .getExportsOfModule(symbol)
    .flatMap((each) => declarationsOf(project, each));
  for (let node = due.pop(); node !== undefined; node = due.pop()) {
    // The members of a base are shown as members of the type that extends it.
    due.push(...basesOf(project, node).flatMap(({ nodes }) => nodes));
    for (const type of typesIn(node)) {
      const name = type.getText();
      if (exported.has(name) || found.has(name)) continue;
      const nodes = typeDeclarations(project, type);
      if (nodes.length === 0) continue;
      const bases = nodes.flatMap((each) => basesOf(project, each));
      const hidden = bases.filter((base) => !exported.has(base.name));
      const all = [...nodes, ...hidden.flatMap((base) => base.nodes)];
      found.set(name, nameOf(root, name, all, false));
      due.push(...nodes);
    }
  }
  return [...found.values()];
}

/** The names of types in the public part of a declaration. */
function typesIn(node: Node): Node[] {
  if (isClassDeclaration(node)) {
    const seen = [...(node.heritageClauses ?? []), ...node.members.filter(isPublic)];
    return seen.flatMap(typesIn);
  }
  const names: Node[] = [];
  const visit = (child: Node): void => {
    if (isBlock(child) || (isPropertyDeclaration(node) && child === node.initializer)) return;
    if (isTypeReferenceNode(child)) names.push(child.typeName);
    const isBase = isInterfaceDeclaration(node) && isExpressionWithTypeArguments(child);
    if (isExpressionWithTypeArguments(child) && !isBase) names.push(child.expression);
    child.forEachChild(visit);
  };
  visit(node);
  return names;
}

/** Declarations of a type in the sources; empty for types of libraries, and for type parameters. */
function typeDeclarations(project: Project, name: Node): Node[] {
  const symbol = project.checker.getSymbolAtLocation(name);
  if (symbol === undefined) return [];
  const direct = resolved(project, symbol);
  const isImported = direct.some(({ kind }) => kind === SyntaxKind.ImportSpecifier);
  const nodes = isImported ? resolved(project, project.checker.getAliasedSymbol(symbol)) : direct;
  return nodes.filter((each) => {
    const ours = !each.getSourceFile().fileName.includes('/node_modules/');
    const { kind } = each;
    const isType =
      isInterfaceDeclaration(each) ||
      isClassDeclaration(each) ||
      kind === SyntaxKind.TypeAliasDeclaration;
    return ours && isType && !each.getSourceFile().isDeclarationFile;
  });
}

type ExportedSymbol = ReturnType<Project['checker']['getExportsOfModule']>[number];

/** The bases of an interface, direct or not: programs see its members, exported or not. */
function basesOf(project: Project, node: Node): { name: string; nodes: readonly Node[] }[] {
  if (!isInterfaceDeclaration(node)) return [];
  const clauses = node.heritageClauses ?? [];
  return clauses.flatMap(({ types }) =>
    types.flatMap(({ expression }) => {
      const symbol = project.checker.getSymbolAtLocation(expression);
      if (symbol === undefined) return [];
      const nodes = declarationsOf(project, symbol).filter(isInterfaceDeclaration);
      const ours = nodes.filter(
        (each) => !each.getSourceFile().fileName.includes('/node_modules/'),
      );
      const name = expression.getText();
      return [{ name, nodes: ours }, ...ours.flatMap((base) => basesOf(project, base))];
    }),
  );
}

/** Declarations of a name, found through all files that only re-export it. */
function declarationsOf(project: Project, exported: ExportedSymbol): Node[] {
  const direct = resolved(project, exported);
  const passedOn = direct.every(({ kind }) => kind === SyntaxKind.ExportSpecifier);
  return passedOn ? resolved(project, project.checker.getAliasedSymbol(exported)) : direct;
}

function resolved(project: Project, { declarations }: ExportedSymbol): Node[] {
  return declarations.flatMap((handle) => {
    const node = handle.resolve(project);
    // A variable's docstring and `export const` belong to the whole statement.
    const isVariable = node?.kind === SyntaxKind.VariableDeclaration;
    return node === undefined ? [] : [isVariable ? node.parent.parent : node];
  });
}

function nameOf(root: string, name: string, nodes: readonly Node[], exported: boolean): PublicName {
  const [first] = nodes;
  if (first === undefined) throw new Error(`${name} is declared nowhere`);
  const { fileName, text } = first.getSourceFile();
  const line = text.slice(0, first.getStart()).split('\n').length;
  return {
    name,
    doc: nodes
      .filter((node) => !isInterfaceDeclaration(node) || node.name.text === name)
      .map(docOf)
      .filter(Boolean)
      .join('\n\n'),
    code: nodes.map(codeOf).join('\n'),
    source: `${relative(root, fileName)}:${line}`,
    calls: [...new Set(nodes.flatMap((node) => callsOf(node, name)))],
    undocumented: nodes.flatMap((node) => undocumentedMembers(node, name)),
    exported,
  };
}

/** The calls of a declaration that take arguments, called `name`. */
function callsOf(node: Node, name: string): string[] {
  if (isFunctionDeclaration(node)) return node.parameters.length > 0 ? [name] : [];
  if (!isClassDeclaration(node) && !isInterfaceDeclaration(node)) return [];
  return node.members.filter(isPublic).flatMap((member) => {
    const isMethod = isMethodSignatureDeclaration(member) || isMethodDeclaration(member);
    if (!isMethod && !isConstructorDeclaration(member)) return [];
    if (member.parameters.length === 0) return [];
    return [isMethod ? `${name}.${member.name.getText()}` : `new ${name}`];
  });
}

/** The text of a node's docstring. */
function docOf(node: Node): string {
  return (node.jsDoc ?? []).map((comment) => plain(comment.getText())).join('\n\n');
}

/** The comment at the head of a file. */
function headOf(path: string): string {
  const [comment = ''] = /^\/\*\*[\s\S]*?\*\//.exec(readFileSync(path, 'utf8')) ?? [];
  return plain(comment);
}

/** A comment without its stars. */
function plain(comment: string): string {
  return comment
    .replace(/^\/\*\*[ \t]*/, '')
    .replace(/[ \t]*\*\/$/, '')
    .replaceAll(/^[ \t]*\*[ \t]?/gm, '')
    .trim();
}

/** A declaration as `go doc` and `.d.ts` files show it: nothing private, no bodies. */
function codeOf(node: Node): string {
  const { text } = node.getSourceFile();
  if (!isClassDeclaration(node)) return text.slice(node.getStart(), bodyOf(node)).trimEnd();
  const open = text.indexOf('{', node.heritageClauses?.end ?? node.name?.end ?? node.pos);
  const members = node.members
    .filter(isPublic)
    .map((member) => `  ${text.slice(member.getStart(undefined, true), bodyOf(member)).trimEnd()};`)
    .map((line) => line.replace(/;;$/, ';'));
  return `${text.slice(node.getStart(), open)}{\n${members.join('\n')}\n}`;
}

/** Where the body of a function begins, or the node ends. */
function bodyOf(node: Node): number {
  const isFunction =
    isFunctionDeclaration(node) ||
    isMethodDeclaration(node) ||
    isConstructorDeclaration(node) ||
    isGetAccessorDeclaration(node) ||
    isSetAccessorDeclaration(node);
  if (isFunction && node.body !== undefined && isBlock(node.body)) {
    return node.body.getStart();
  }
  if (isPropertyDeclaration(node) && node.initializer !== undefined) {
    return node.type?.end ?? node.end;
  }
  return node.end;
}

function isPublic(member: Node): boolean {
  const [words = ''] = /^[^(:={]*/.exec(member.getText()) ?? [];
  return !/^(?:.*\s)?(?:#|private\b|protected\b)/.test(words);
}

/** The members that programs see and that have no docstring, in nested types too. */
function undocumentedMembers(node: Node, owner: string): string[] {
  if (isClassDeclaration(node)) {
    return node.members.filter(isPublic).flatMap((member) => lacking(member, owner));
  }
  if (isInterfaceDeclaration(node)) {
    return node.members.flatMap((member) => lacking(member, owner));
  }
  const found: string[] = [];
  if (node.kind === SyntaxKind.TypeAliasDeclaration) {
    const visit = (child: Node): void => {
      if (isMember(child)) found.push(...lacking(child, owner));
      else child.forEachChild(visit);
    };
    node.forEachChild(visit);
  }
  return found;
}

function isMember(node: Node): boolean {
  return isPropertySignatureDeclaration(node) || isMethodSignatureDeclaration(node);
}

/** Members of every error class and disposable, and the discriminants of unions. */
const EXPLAINED =
  /^(?:override (?:get|readonly) name\b|(?:async )?\[Symbol\.(?:asyncD|d)ispose\]|readonly \w+: (?:typeof \w+\.\w+|'[^']+');?$)/;

function lacking(member: Node, owner: string): string[] {
  const named =
    isMember(member) ||
    isPropertyDeclaration(member) ||
    isMethodDeclaration(member) ||
    isGetAccessorDeclaration(member);
  if (!named || docOf(member) !== '' || EXPLAINED.test(member.getText())) return [];
  const [name = ''] = /(?:\[[^\]]+\]|[\w$]+)(?=[?!]?\s*[(<:=;]|$)/.exec(member.getText()) ?? [];
  return [`${owner}.${name}`];
}
