"""Programs of Debian that a line of shell suffices for: each reads inputs that are made here and prints what it made of them.

One entry is a package, the program that must run on the library, and the script. A script prints digests of what it wrote.
"""

from preload.program import Program, file, scripted

# What Go links without C is static. This one takes C's memory in many goroutines.
GO = """package main

// #include <stdlib.h>
// #include <string.h>
import "C"
import ("os"; "strconv"; "unsafe")

func work(n int, done chan int) {
	sum := 0
	for i := 1; i < 3000; i++ {
		block := C.malloc(C.size_t(i * n))
		C.memset(block, C.int(i & 127), C.size_t(i * n))
		block = C.realloc(block, C.size_t(2 * i * n))
		sum += int(*(*byte)(unsafe.Add(block, i * n - 1)))
		C.free(block)
	}
	done <- sum
}

func main() {
	done := make(chan int)
	for n := 1; n <= 8; n++ { go work(n, done) }
	sum := 0
	for n := 1; n <= 8; n++ { sum += <-done }
	text := C.CString(strconv.Itoa(sum))
	os.Stdout.WriteString(C.GoString(text))
	C.free(unsafe.Pointer(text))
}
"""

SQL = """
create table t (id integer primary key, name text, value real, note text);
with recursive c(i) as (select 0 union all select i + 1 from c where i < 60000)
  insert into t select i, 'name' || (i * 7919 % 10007), i / 3.0, substr('abcdefghijklmnopqrstuvwxyz', i % 20, i % 13) from c;
create index by_name on t (name); create index by_note on t (note, value);
select note, count(*), round(sum(value), 2), group_concat(name) from (select * from t where id % 211 = 0) group by note order by note;
select a.id, b.id from t a join t b on a.name = b.name and a.id < b.id where a.id % 1009 = 0 order by 1, 2 limit 50;
create virtual table f using fts5 (body);
insert into f select name || ' ' || note || ' ' || id from t where id < 20000;
select count(*), min(rowid) from f where f match 'name5 OR abc';
select json_group_array(json_object('k', id, 'v', name)) from t where id % 3001 = 0;
delete from t where id % 2; vacuum; select count(*), sum(length(note)) from t; pragma integrity_check;
"""
ROWS = "python3 -c 'import json; print(json.dumps([dict(k=i % 97, v=i * 3, s=\"y\" * (i % 60)) for i in range(30000)]))' > rows.json; "
GIT = r"""
export GIT_{AUTHOR,COMMITTER}_NAME=A GIT_{AUTHOR,COMMITTER}_EMAIL=a@b.c GIT_{AUTHOR,COMMITTER}_DATE='1700000000 +0000' GIT_CONFIG_NOSYSTEM=1
mkdir r; cd r; git init -q -b main .
for step in 0 1 2 3 4 5; do
  for part in {0..11}; do head -3000 ../input.txt | awk "(NR - 1 + $part) % ($step + 2)" > file$part.txt; done
  git add .; git commit -q -m "step $step"
done
git gc -q --aggressive; git fsck --strict
(git log -p --stat; git blame file3.txt) | sha256sum; git grep -c slab.*cache; git rev-parse HEAD
"""
BASH = r"""
declare -A table; for i in {1..20000}; do table[$((i % 501))]+="x$i"; done
for k in 1 77 500; do echo "$k ${#table[$k]}"; done
list=(); for i in {1..3000}; do list+=("$(( i * 7919 % 10007 ))"); done; printf '%s\n' "${list[@]}" | sort -n | md5sum
f() { local depth=$1; (( depth == 0 )) && return; local s; s=$(printf '%0100d' "$depth"); f $((depth - 1)); echo "${#s}"; }; f 40 | tail -1
cat <<< "${list[*]//7/seven}" | wc -c; [[ "${list[*]}" =~ ([0-9]+)\ 7919 ]]; echo "${BASH_REMATCH[1]}"
"""
TEXT_TOOLS = r"""
sort long.txt | uniq -c | sort -k1,1nr -k2 | sed -n 1,50p; sort -S 1M -k2,3 long.txt | md5sum; cut -d' ' -f2 long.txt | sort -u | tr '\n' ' '
awk '{ n[$2 $3] += $1 } END { for (k in n) print k, n[k] }' long.txt | sort; sed -E 's/(s[a-z]+) ([a-z]+)/\2-\1/g' long.txt | md5sum
grep -cE '(slab|span) .*x{10,}' long.txt; join <(sort long.txt) <(sort long.txt | sed -n 1,100p) | wc -l; tac long.txt | paste - - - | md5sum
split -l 3000 long.txt part; (diff partaa partab || true) | md5sum; comm -12 <(sort partaa) <(sort partab) | wc -l; find . -name 'part*' | sort | xargs wc -l
"""
ARCHIVES = r"""
tar --sort=name --mtime=@0 --owner=0 --group=0 -cf a.tar long.txt
for tool in "gzip -n -9" "bzip2 -9" "xz -6 -T2" "zstd -q -9 -T2"; do
  command -v ${tool%% *} > /dev/null || { echo "no ${tool%% *}"; continue; }
  $tool -c < a.tar > packed; md5sum < packed; ${tool%% *} -dc < packed | tar -xOf - | md5sum
done
"""
OPENSSL = r"""
for d in sha256 sha3-512 blake2b512; do openssl dgst -$d long.txt; done
openssl enc -aes-256-cbc -pbkdf2 -S 0102030405060708 -pass pass:x -in long.txt | md5sum
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 10 -subj /CN=freestone 2> /dev/null && openssl verify -CAfile cert.pem cert.pem
"""
BINUTILS = r"""
file=$(readlink -f /usr/bin/git); objdump -d "$file" | sed -n 1,60000p | md5sum; readelf -aW "$file" | md5sum; nm -D "$file" | sort | md5sum
strings "$file" | md5sum; objcopy --strip-all "$file" copy && md5sum < copy
"""
MAKE = r"""
{
  echo 'all: t299'; printf '\t@echo done $(words $(wildcard t*))\n'
  for i in {0..299}; do echo t$i: $([ $i = 0 ] || seq -f t%g $((i > 3 ? i - 3 : 0)) $((i - 1))); printf '\t@echo made $@ from $^ > $@; cat $@\n'; done
} > Makefile
"""

# name: (package, program, how it is called when it runs, script)
SCRIPTS: dict[str, tuple[str, str, str, str]] = {
    # text
    "sort": ("coreutils", "sort", "sort", "sort -k2,2 -k1,1n -S 200K input.txt | md5sum; sort -R --random-source=input.txt input.txt | md5sum"),
    "gawk": ("gawk", "gawk", "gawk", "gawk '{n[$2 $3] += $1; s = s substr($4, 1, 3)} END {for (k in n) print k, n[k]; print length(s)}' input.txt | sort | md5sum"),
    "mawk": ("mawk", "mawk", "mawk", "mawk '{n[$2 $3] += $1} END {for (k in n) print k, n[k]}' input.txt | sort | md5sum"),
    "sed": ("sed", "sed", "sed", r"sed -E 's/(s[a-z]+) ([a-z]+)/\2-\1/g; /dirty/{h;d}; /clean/G; $!N; P; D' input.txt | md5sum"),
    "grep": ("grep", "grep", "grep", r"grep -cE '(slab|span) .*x{10,}' input.txt; grep -P '(\w+) \1' input.txt | md5sum"),
    "find": ("findutils", "find", "find", "mkdir -p a/{1..40}/{x,y,z}; touch a/{1..40}/{x,y}/file; find a -name 'f*' -newer input.txt | sort | md5sum; find a -depth -delete; ls | head -3"),
    "diff": ("diffutils", "diff", "diff", "(diff -u --label a --label b input.txt other.txt; diff -y input.txt other.txt) | md5sum || true"),
    "patch": ("patch", "patch", "patch", "diff -u input.txt other.txt > d || true; patch -s input.txt d; cmp input.txt other.txt && echo same"),
    "m4_macros": ("m4", "m4", "m4", "printf 'define(f,`ifelse($1,0,0,`eval($1+f(decr($1)))\")\")f(30)' | tr '\"' \"'\" | m4; for i in $(seq 500); do echo \"define(w$i,\\`v$i')w$i\"; done | m4 | md5sum"),
    "groff": ("groff", "groff", "troff", "for i in $(seq 200); do echo .SH Part $i; echo Some text here.; done > a.man; groff -man -Tutf8 a.man | md5sum"),
    "aspell": ("aspell", "aspell", "aspell", "aspell -l en list < page.html | sort -u | md5sum"),
    "dc": ("dc", "dc", "dc", "dc -e '60k 2v p' -e '3 2000^p' -e '[la1+dsa*pla10>y]sy0sa1lyx'"),
    "file": ("file", "file", "file", "file input.txt picture.ppm sound.wav page.html /usr/bin/env | cut -c1-60"),
    "w3m": ("w3m", "w3m", "w3m", "w3m -dump -cols 80 page.html | md5sum"),
    "lynx": ("lynx", "lynx", "lynx", "lynx -dump -nolist page.html | md5sum"),
    # archives and transfer
    "tar": ("tar", "tar", "tar", "tar --sort=name --mtime=@0 --owner=0 --group=0 -cf a.tar input.txt other.txt table.csv; md5sum < a.tar; tar -xOf a.tar | md5sum"),
    "gzip": ("gzip", "gzip", "gzip", "gzip -n -9 < input.txt | tee a.gz | md5sum; gzip -dc a.gz | cmp - input.txt && echo same"),
    "bzip2": ("bzip2", "bzip2", "bzip2", "bzip2 -9 < input.txt > a.bz2; md5sum < a.bz2; bzip2 -dc a.bz2 | cmp - input.txt && echo same"),
    "xz": ("xz-utils", "xz", "xz", "xz -9e -T2 < input.txt > a.xz; md5sum < a.xz; xz -dc a.xz | cmp - input.txt && echo same"),
    "zstd": ("zstd", "zstd", "zstd", "zstd -q -19 -T2 < input.txt > a.zst; md5sum < a.zst; zstd -dcq a.zst | cmp - input.txt && echo same"),
    "lz4": ("lz4", "lz4", "lz4", "lz4 -q -9 < input.txt > a.lz4; md5sum < a.lz4; lz4 -dc < a.lz4 | cmp - input.txt && echo same"),
    "brotli": ("brotli", "brotli", "brotli", "brotli -q 9 -c input.txt > a.br; md5sum < a.br; brotli -dc a.br | cmp - input.txt && echo same"),
    "lzip": ("lzip", "lzip", "lzip", "lzip -9 < input.txt > a.lz; md5sum < a.lz; lzip -dc a.lz | cmp - input.txt && echo same"),
    "7z": ("p7zip-full", "7z", "7z", "7z a -bd -mtm=off -mx=7 a.7z input.txt table.csv > /dev/null; 7z x -so a.7z | md5sum"),
    "zip": ("zip", "zip", "zip", "touch -d @1700000000 input.txt other.txt; zip -q -X -9 a.zip input.txt other.txt; md5sum < a.zip"),
    "cpio": ("cpio", "cpio", "cpio", "ls input.txt other.txt table.csv | cpio --quiet -o -H newc --reproducible > a.cpio; cpio --quiet -t < a.cpio"),
    "rsync": ("rsync", "rsync", "rsync", "mkdir a b; cp input.txt other.txt table.csv a; rsync -a --checksum a/ b/; echo more >> a/input.txt; rsync -a --checksum --itemize-changes a/ b/; md5sum b/*"),
    "wget": ("wget", "wget", "wget", "wget --help | md5sum; wget -q -O - file:///nowhere || echo $?"),
    "gpg": ("gnupg", "gpg", "gpg", "export GNUPGHOME=$PWD/g; mkdir -m 700 g; gpg -q --batch --passphrase x --pinentry-mode loopback --symmetric -o a.gpg input.txt; gpg -q --batch --passphrase x --pinentry-mode loopback -d a.gpg 2> /dev/null | md5sum; gpgconf --kill all"),
    "ssh_keygen": ("openssh-client", "ssh-keygen", "ssh-keygen", "ssh-keygen -q -t ed25519 -N '' -C x -f key; ssh-keygen -y -f key | cmp - <(cut -d' ' -f1-3 key.pub) && echo same"),
    # compilers and build tools
    "flex": ("flex", "flex", "flex", "printf '%%%%\\n[a-z]+ puts(yytext);\\n[0-9]+ ;\\n.|\\\\n ;\\n%%%%\\n' > a.l; flex -o a.c a.l; md5sum < a.c"),
    "bison": ("bison", "bison", "bison", "printf '%%token N P\\n%%left P\\n%%%%\\ne: e P e | N;\\n%%%%\\n' > a.y; bison -o a.c a.y 2> /dev/null; md5sum < a.c"),
    "gperf": ("gperf", "gperf", "gperf", "seq 900 | sed 's/^/word/' | gperf | md5sum"),
    "gfortran": ("gfortran", "gfortran", "f951", "printf 'program p\\n integer :: i\\n real :: s = 0\\n do i = 1, 100\\n  s = s + sqrt(real(i))\\n end do\\n print *, s\\nend program\\n' > a.f90; gfortran -O2 -c a.f90 -o a.o; md5sum < a.o"),
    "nasm": ("nasm", "nasm", "nasm", "for i in $(seq 3000); do echo \"l$i: mov rax, $i\"; echo \" jmp l$i\"; done > a.asm; nasm -f elf64 a.asm -o a.o; objdump -d a.o | md5sum"),
    "yasm": ("yasm", "yasm", "yasm", "for i in $(seq 3000); do echo \"l$i: mov rax, $i\"; echo \" jmp l$i\"; done > a.asm; yasm -f elf64 a.asm -o a.o; objdump -d a.o | md5sum"),
    "protoc": ("protobuf-compiler", "protoc", "protoc", "(echo 'syntax = \"proto3\";'; for i in $(seq 200); do echo \"message M$i { int32 a = 1; repeated string b = 2; }\"; done) > a.proto; protoc --cpp_out=. a.proto; md5sum a.pb.*"),
    "ninja": ("ninja-build", "ninja", "ninja", "(echo 'rule c'; echo ' command = cp $in $out'; for i in $(seq 300); do echo \"build o$i: c input.txt\"; done) > build.ninja; ninja > /dev/null; ls o* | wc -l"),
    "ocaml": ("ocaml-nox", "ocaml", "ocaml", "echo 'let l = List.init 50000 (fun i -> i * 7919 mod 10007);; print_int (List.length (List.sort_uniq compare l));; let s = Buffer.create 9;; List.iter (fun i -> Buffer.add_string s (string_of_int i)) l;; print_int (Buffer.length s)' > a.ml; ocaml a.ml"),
    "go": ("golang-go", "/usr/bin/go", "exchange", f"cat > exchange.go <<'END'\n{GO}END\nexport GOCACHE=$PWD/cache GO111MODULE=off; /usr/bin/go build exchange.go; ./exchange"),
    # interpreters
    "ruby": ("ruby", "ruby", "ruby", "ruby -e 'h = Hash.new { |t, k| t[k] = [] }; 60000.times { |i| h[i % 977] << \"x\" * (i % 61) }; puts h.values.map(&:size).sum; puts (1..3000).map { |i| i.to_s * 9 }.join.scan(/12+/).size; GC.start; puts Array.new(8) { |n| Thread.new { (1..9000).map { |i| i.to_s * n }.join.size } }.map(&:value).inspect; puts 3**2000 % 10**40'"),
    "guile": ("guile-3.0", "guile", "guile", "guile --no-auto-compile -c '(define (f n) (if (< n 2) n (+ (f (- n 1)) (f (- n 2))))) (display (f 22)) (newline) (display (string-length (apply string-append (map number->string (iota 20000)))))'"),
    "gforth": ("gforth", "gforth", "gforth", "gforth -e ': f dup 2 < if else dup 1- recurse swap 2 - recurse + then ; 25 f . 100000 allocate throw free throw bye'"),
    "sbcl": ("sbcl", "sbcl", "sbcl", "sbcl --noinform --non-interactive --no-userinit --eval '(print (length (remove-duplicates (loop for i below 9000 collect (mod (* i 7919) 997)))))'"),
    "emacs": ("emacs-nox", "emacs", "emacs", "emacs -Q --batch --eval '(with-temp-buffer (insert-file-contents \"input.txt\") (sort-lines nil (point-min) (point-max)) (goto-char (point-min)) (while (re-search-forward \"slab\" nil t) (replace-match \"SLAB\")) (princ (md5 (current-buffer))))'"),
    "tmux": ("tmux", "tmux", "tmux", "export TMUX_TMPDIR=$PWD; tmux -f /dev/null new-session -d -x 80 -y 24 'cat input.txt; echo done; sleep 1000'; until tmux capture-pane -p | grep -q done; do sleep 0.1; done; tmux capture-pane -p | md5sum; tmux kill-server"),
    "gnuplot": ("gnuplot-nox", "gnuplot", "gnuplot", "gnuplot -e 'set terminal svg; set datafile separator \",\"; plot \"table.csv\" using 1:3 with lines' | md5sum"),
    "z3": ("z3", "z3", "z3", "(echo '(declare-const a (_ BitVec 32))(declare-const b (_ BitVec 32))(assert (= (bvmul a b) #x12345678))(assert (bvugt a b))(assert (bvugt b #x00000001))(check-sat)') | z3 -in"),
    # pictures, sound, pages
    "imagemagick": ("imagemagick", "convert", "convert", "convert picture.ppm -resize 320x200 -rotate 17 -blur 0x2 out.ppm; md5sum < out.ppm; convert picture.ppm -strip -quality 85 a.jpg; identify -format '%wx%h %m' a.jpg"),
    "graphicsmagick": ("graphicsmagick", "gm", "gm", "gm convert picture.ppm -resize 320x200 -edge 2 out.ppm; md5sum < out.ppm"),
    "optipng": ("optipng", "optipng", "optipng", "convert picture.ppm -strip a.png; optipng -quiet -o2 -out b.png a.png; convert a.png a.ppm; convert b.png b.ppm; cmp a.ppm b.ppm && echo same"),
    "pngquant": ("pngquant", "pngquant", "pngquant", "convert picture.ppm -strip a.png; pngquant --force --output b.png 64 a.png; identify -format '%k' b.png"),
    "cwebp": ("webp", "cwebp", "cwebp", "convert picture.ppm a.png; cwebp -quiet -q 80 a.png -o a.webp; md5sum < a.webp; dwebp -quiet a.webp -ppm -o b.ppm; md5sum < b.ppm"),
    "rsvg": ("librsvg2-bin", "rsvg-convert", "rsvg-convert", "echo '<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"200\" height=\"200\"><circle cx=\"90\" cy=\"90\" r=\"70\" fill=\"red\"/><path d=\"M0 0L200 200\" stroke=\"blue\"/></svg>' > a.svg; rsvg-convert a.svg -o a.png; convert a.png a.ppm; md5sum < a.ppm"),
    "pdftotext": ("poppler-utils", "pdftotext", "pdftotext", "(echo '%!PS'; for i in $(seq 30); do echo \"/Helvetica findfont 12 scalefont setfont 72 600 moveto (page $i) show showpage\"; done) > a.ps; gs -q -dBATCH -dNOPAUSE -sDEVICE=pdfwrite -sOutputFile=a.pdf a.ps; pdftotext a.pdf - | md5sum; pdftoppm -r 20 a.pdf p; cat p-*.ppm | md5sum"),
    "qpdf": ("qpdf", "qpdf", "qpdf", "(echo '%!PS'; for i in $(seq 30); do echo \"/Helvetica findfont 12 scalefont setfont 72 600 moveto (page $i) show showpage\"; done) > a.ps; gs -q -dBATCH -dNOPAUSE -sDEVICE=pdfwrite -sOutputFile=a.pdf a.ps; qpdf --check a.pdf | tail -1; qpdf --show-npages a.pdf; qpdf --qdf a.pdf b.pdf"),
    "mutool": ("mupdf-tools", "mutool", "mutool", "(echo '%!PS'; for i in $(seq 9); do echo \"/Helvetica findfont 12 scalefont setfont 72 600 moveto (page $i) show showpage\"; done) > a.ps; gs -q -dBATCH -dNOPAUSE -sDEVICE=pdfwrite -sOutputFile=a.pdf a.ps; mutool draw -q -F txt a.pdf | md5sum; mutool draw -q -r 30 -o p%d.ppm a.pdf; cat p*.ppm | md5sum"),
    "ffmpeg": ("ffmpeg", "ffmpeg", "ffmpeg", "ffmpeg -v error -f lavfi -i testsrc=d=2:s=160x120 -c:v mpeg4 -threads 2 -fflags +bitexact -flags:v +bitexact a.avi; ffmpeg -v error -i a.avi -f md5 -; ffmpeg -v error -i sound.wav -f md5 -"),
    "sox": ("sox", "sox", "sox", "sox -D sound.wav out.wav rate 22050 bass +3 reverb; md5sum < out.wav"),
    "flac": ("flac", "flac", "flac", "flac -s -8 sound.wav -o a.flac; flac -s -d a.flac -o b.wav; cmp sound.wav b.wav && echo same"),
    "lame": ("lame", "lame", "lame", "lame --quiet -b 128 sound.wav a.mp3; md5sum < a.mp3; lame --quiet --decode a.mp3 b.wav; md5sum < b.wav"),
    "opusenc": ("opus-tools", "opusenc", "opusenc", "opusenc --quiet --serial 1 sound.wav a.opus; opusdec --quiet --no-dither a.opus b.wav; md5sum < b.wav"),
    "oggenc": ("vorbis-tools", "oggenc", "oggenc", "oggenc -Q -s 1 sound.wav -o a.ogg; md5sum < a.ogg; oggdec -Q a.ogg -o b.wav; md5sum < b.wav"),
    "xsltproc": ("xsltproc", "xsltproc", "xsltproc", "echo '<xsl:stylesheet version=\"1.0\" xmlns:xsl=\"http://www.w3.org/1999/XSL/Transform\"><xsl:template match=\"/\"><o><xsl:for-each select=\"//item\"><xsl:sort select=\"string-length(name)\" data-type=\"number\"/><i><xsl:value-of select=\"@id\"/></i></xsl:for-each></o></xsl:template></xsl:stylesheet>' > a.xsl; xsltproc a.xsl data.xml | md5sum"),
    "libreoffice": ("libreoffice-writer-nogui", "soffice", "soffice", "soffice --headless -env:UserInstallation=file://$PWD/profile --convert-to txt:Text --outdir out page.html > /dev/null; md5sum < out/page.txt"),
    "qtwebkit": ("wkhtmltopdf", "wkhtmltopdf", "wkhtmlto", "export QT_QPA_PLATFORM=offscreen; (echo '<script>var s = []; for (var i = 0; i < 60000; i++) s.push({k: i % 97, t: \"x\" + i}); s.sort(function(a, b) { return a.k - b.k }); document.write(s.length + s[777].t)</script>'; head -c 9000 page.html) > a.html; wkhtmltopdf -q a.html a.pdf; pdftotext a.pdf - | md5sum; wkhtmltoimage -q --crop-h 1500 --format ppm a.html a.ppm; md5sum < a.ppm"),
    # version control and databases
    "mercurial": ("mercurial", "hg", "python3", "export HGPLAIN=1 PYTHONMALLOC=malloc; hg init r; cd r; cp ../input.txt ../other.txt .; hg add -q; hg commit -q -m one -d '0 0' -u a; sed -i s/slab/span/ *.txt; hg commit -q -m two -d '0 0' -u a; hg log -p | md5sum; hg id"),
    "subversion": ("subversion", "svn", "svn", "svnadmin create r; svn -q co file://$PWD/r w; cp input.txt other.txt w; cd w; svn -q add *.txt; svn -q ci -m one; sed -i s/slab/span/ *.txt; svn diff | md5sum; svn -q ci -m two; svn -q up; svn cat -r1 input.txt | md5sum"),
    "postgres": ("postgresql", "/usr/lib/postgresql/15/bin/initdb", "postgres", "chmod 777 .; cp input.txt table.csv /tmp 2> /dev/null || true; run() { setpriv --reuid=postgres --regid=postgres --clear-groups env HOME=$PWD PATH=/usr/lib/postgresql/15/bin:$PATH \"$@\"; }; touch witness.txt; chmod 666 witness.txt; run initdb -D $PWD/d -A trust -E UTF8 --locale=C > /dev/null; run postgres --single -D $PWD/d -j postgres <<< \"create table t as select i, i * 7919 % 10007 v, repeat('x', i % 50) s from generate_series(1, 40000) i;\n\ncreate index on t (v);\n\nselect count(*), sum(v), max(length(s)) from t where v % 7 = 3;\n\nselect md5(string_agg(s, ',' order by v, i)) from t where i % 11 = 0;\n\n\" | grep -v '^backend'"),
    "mariadb": ("mariadb-server", "mariadbd", "mariadbd", "mkdir d; (echo \"create database a; use a; create table t (i int primary key, s varchar(99)) engine=innodb; insert into t select seq, repeat('x', seq mod 50) from seq_1_to_20000; select count(*), sum(length(s)), md5(group_concat(s order by i)) from t where i mod 97 = 0;\" | tr '\\n' ' ') > a.sql; mariadb-install-db --no-defaults --user=root --datadir=$PWD/d --skip-test-db > /dev/null 2>&1; mariadbd --no-defaults --user=root --datadir=$PWD/d --socket=$PWD/s --skip-networking --pid-file=$PWD/p 2> log & until mariadb --no-defaults -u root -S $PWD/s -e 'select 1' > /dev/null 2>&1; do kill -0 $!; sleep 0.2; done; mariadb --no-defaults -u root -S $PWD/s -N < a.sql; mariadb-admin --no-defaults -u root -S $PWD/s shutdown; wait"),
    "memcached": ("memcached", "memcached", "memcached", "memcached -u root -s $PWD/s -m 64 & until test -S s; do sleep 0.1; done; python3 -c 'import socket\nc = socket.socket(socket.AF_UNIX); c.connect(\"s\"); f = c.makefile(\"rwb\")\nfor i in range(4000):\n  v = b\"v\" * (i % 900); f.write(b\"set k%d 0 0 %d\\r\\n%s\\r\\n\" % (i, len(v), v)); f.flush(); assert f.readline() == b\"STORED\\r\\n\"\nn = 0\nfor i in range(0, 4000, 7):\n  f.write(b\"get k%d\\r\\n\" % i); f.flush(); n += int(f.readline().split()[3]); f.readline(); f.readline()\nprint(n)'; kill $!; wait || true"),
    # web servers
    "lighttpd": ("lighttpd", "lighttpd", "lighttpd", "mkdir w; cp page.html input.txt w; echo \"server.document-root = \\\"$PWD/w\\\" server.port = 0 server.bind = \\\"$PWD/s\\\" index-file.names = (\\\"page.html\\\")\" | sed 's/ server/\\nserver/g; s/ index/\\nindex/' > c; lighttpd -D -f c & until test -S s; do kill -0 $!; sleep 0.1; done; for i in $(seq 40); do curl -s --unix-socket s http://x/input.txt; curl -s --unix-socket s http://x/; done | md5sum; kill $!; wait || true"),
    "haproxy": ("haproxy", "haproxy", "haproxy", "printf 'defaults\\n mode http\\n timeout connect 9s\\n timeout client 9s\\n timeout server 9s\\nfrontend f\\n bind unix@%s/s\\n http-request return status 200 content-type text/plain lf-string \"you asked for %%[path]\"\\n' $PWD > c; haproxy -f c & until test -S s; do kill -0 $!; sleep 0.1; done; for i in $(seq 60); do curl -s --unix-socket s http://x/page$i; done | md5sum; kill $!; wait || true"),
    "apache": ("apache2", "apache2", "apache2", "mkdir w; cp page.html w; printf 'ServerName x\\nServerRoot %s\\nPidFile %s/p\\nListen 127.0.0.1:18917\\nUser www-data\\nGroup www-data\\nLoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so\\nLoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so\\nErrorLog %s/log\\nDocumentRoot %s/w\\nMutex pthread\\n' $PWD $PWD $PWD $PWD > c; chmod 755 . w; chmod 644 w/*; apache2 -X -f $PWD/c & until curl -s -o /dev/null http://127.0.0.1:18917/; do kill -0 $!; sleep 0.1; done; for i in $(seq 40); do curl -s http://127.0.0.1:18917/page.html; done | md5sum; kill $!; wait || true"),
    # files, systems
    "busybox": ("busybox", "busybox", "busybox", "busybox sort input.txt | busybox awk '{print $2}' | busybox uniq -c | busybox md5sum; busybox gzip -c input.txt | busybox zcat | busybox md5sum"),
    "systemctl": ("systemd", "systemd-analyze", "systemd-analyze", "systemd-analyze calendar --iterations=3 --base-time=@1700000000 'Mon *-*-* 00:00:00 UTC' | grep -v 'From now' | md5sum"),
    "dpkg": ("dpkg", "dpkg-deb", "dpkg-deb", "mkdir -p p/DEBIAN p/usr; cp input.txt p/usr; printf 'Package: a\\nVersion: 1\\nArchitecture: all\\nMaintainer: a\\nDescription: a\\n' > p/DEBIAN/control; dpkg-deb -Zxz --root-owner-group -b p a.deb > /dev/null; dpkg-deb -c a.deb | awk '{print $1, $6}'"),
    "apt": ("apt", "apt-cache", "apt-cache", "apt-cache show bash | sed -n 1,3p; apt-cache depends bash | md5sum"),
}  # fmt: skip

# What ctest runs, too. name: (programs, how the one that must run on the library is called, script)
TOOLS: dict[str, tuple[str, str, str]] = {
    "sqlite": ("sqlite3", "sqlite3", file("in.sql", SQL) + "sqlite3 :memory: < in.sql"),
    "git": ("git", "git", GIT),
    "jq": ("jq", "jq", ROWS + "jq -c 'group_by(.k) | map({k: .[0].k, n: length, s: (map(.v) | add), t: (map(.s | length) | max)}) | sort_by(.n, .k) | .[0:40]' rows.json"),
    "bash": ("bash", "bash", file("script.sh", BASH) + "bash script.sh"),
    "text_tools": ("bash awk sed grep sort", "sort", TEXT_TOOLS),
    "archives": ("tar gzip bzip2 xz", "xz", ARCHIVES),
    "openssl": ("openssl", "openssl", OPENSSL),
    "binutils": ("objdump readelf nm objcopy git", "x86_64-linux-gnu-objdump", BINUTILS),
    # The debugged program starts without the preloaded libraries, so that both runs debug the same thing.
    "gdb": ("gdb gcc", "gdb", file("a.c", "struct s { int a; double b[3]; }; struct s v = {3, {1, 2, 3}}; int main(void) { return v.a - 3; }") + "gcc -g a.c -o program; gdb -nx -batch -ex 'unset env LD_PRELOAD' -ex 'ptype struct s' -ex 'print v' -ex 'info functions main' program"),
    "make": ("make", "make", MAKE + "make -j2 --output-sync=none -s | tail -1; make -n -B | tr '\\n' ' ' | cut -c1-3000"),
    "cmake": ("cmake make", "cmake", file("CMakeLists.txt", "cmake_minimum_required(VERSION 3.22)\nproject(p C)\nforeach(i RANGE 200)\n  add_library(l${i} STATIC a.c)\nendforeach()") + "echo 'int a;' > a.c; cmake -S . -B build -G 'Unix Makefiles' -DCMAKE_C_COMPILER=/usr/bin/gcc; cmake --build build --target help"),
    "graphviz": ("dot", "libgvc6", "(echo 'digraph g {'; for i in {0..499}; do echo \"n$i -> n$((i * 7919 % 300));\"; done; echo '}') | dot -Tplain"),
    "ghostscript": ("gs", "gs", "(echo '%!PS'; for i in {0..59}; do echo \"/Helvetica findfont 12 scalefont setfont 72 $((700 - i)) moveto (page $i) show showpage\"; done) > in.ps; gs -q -dBATCH -dNOPAUSE -sDEVICE=ppmraw -r20 -sOutputFile=out.ppm in.ps; sha256sum < out.ppm"),
    "xmllint": ("xmllint", "xmllint", "(echo '<list>'; for i in {0..19999}; do printf \"<item id='$i'><name>%*s</name></item>\" $((i % 30)); done; echo '</list>') > a.xml; xmllint --xpath 'count(//item[@id mod 7 = 3]/name[string-length() > 20])' a.xml"),
    "m4": ("m4", "m4", "(echo \"define(\\`loop', \\`ifelse(\\$1, 0, , \\`\\$1 loop(decr(\\$1))')')\"; for i in {1..20}; do echo 'loop(400)'; done) | m4"),
    "bc": ("bc", "bc", "printf 'scale=600\\n4*a(1)\\ne(1)\\n2^4000\\n' | bc -lq"),
    "vim": ("vim", "vim", "vim -u NONE -i NONE -n -es -c '%s/slab/SLAB/ge' -c 'sort u' -c 'g/x\\{40}/d' -c 'wq! out.txt' input.txt; sha256sum < out.txt"),
    "curl": ("curl", "curl", "curl -s file://$PWD/input.txt | wc -c"),
    "strace": ("strace", "strace", "strace -f -o /dev/null /bin/sh -c 'for i in 1 2 3; do (echo $i | cat); done'"),
}  # fmt: skip

PACKAGES = {name: package for name, (package, *_) in SCRIPTS.items()}
TOOL_PROGRAMS: dict[str, Program] = {
    name: Program(tuple(needs.split()), served, scripted(script)) for name, (needs, served, script) in TOOLS.items()
}
PROGRAMS: dict[str, Program] = {
    name: Program((program,), served, scripted(script)) for name, (_, program, served, script) in SCRIPTS.items()
}
