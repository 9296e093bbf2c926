"""Words of the sample business in three languages: people, items, remarks; all made up, addresses under example.org."""

#: Given names and family names, each with the spelling its mail address uses.
PEOPLE: dict[str, tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]] = {
    "en": (
        (
            ("Alice", "alice"),
            ("Benjamin", "benjamin"),
            ("Charlotte", "charlotte"),
            ("Daniel", "daniel"),
            ("Emily", "emily"),
            ("Frank", "frank"),
            ("Grace", "grace"),
            ("Henry", "henry"),
        ),
        (
            ("Baker", "baker"),
            ("Carter", "carter"),
            ("Hughes", "hughes"),
            ("Miller", "miller"),
            ("O'Brien", "obrien"),
            ("Parker", "parker"),
            ("Turner", "turner"),
            ("Wright", "wright"),
        ),
    ),
    "pl": (
        (
            ("Agnieszka", "agnieszka"),
            ("Bartłomiej", "bartlomiej"),
            ("Grażyna", "grazyna"),
            ("Jędrzej", "jedrzej"),
            ("Łukasz", "lukasz"),
            ("Małgorzata", "malgorzata"),
            ("Wojciech", "wojciech"),
            ("Zofia", "zofia"),
        ),
        (
            ("Dąbrowska-Lis", "dabrowska.lis"),
            ("Gołąb", "golab"),
            ("Kaźmierczak", "kazmierczak"),
            ("Mróz", "mroz"),
            ("Pająk", "pajak"),
            ("Sęk", "sek"),
            ("Wrzos", "wrzos"),
            ("Żuraw", "zuraw"),
        ),
    ),
    "ja": (
        (
            ("愛子", "aiko"),
            ("大輔", "daisuke"),
            ("恵美", "emi"),
            ("花子", "hanako"),
            ("一郎", "ichiro"),
            ("健太", "kenta"),
            ("直美", "naomi"),
            ("翔", "sho"),
        ),
        (
            ("阿部", "abe"),
            ("藤田", "fujita"),
            ("橋本", "hashimoto"),
            ("小林", "kobayashi"),
            ("中村", "nakamura"),
            ("斎藤", "saito"),
            ("田中", "tanaka"),
            ("山本", "yamamoto"),
        ),
    ),
}

ITEMS: dict[str, tuple[str, ...]] = {
    "en": (
        "Hex bolt M8 x 40",
        "Ball bearing 6204",
        'Steel sheet 2 mm, "A" grade',
        "Gasket 50/70, <NBR>",
        "Cable gland M20",
        "Nuts & washers M8",
    ),
    "pl": (
        "Śruba sześciokątna M8 x 40",
        "Łożysko kulkowe 6204",
        "Blacha stalowa 2 mm",
        "Uszczelka 50/70",
        "Dławik kablowy M20",
        "Nakrętki i podkładki M8",
    ),
    "ja": (
        "六角ボルト M8",
        "玉軸受 6204",
        "鋼板 2 mm",
        "ガスケット 50/70",
        "ケーブルグランド M20",
        "ナット・座金 M8",
    ),
}

REMARKS: dict[str, tuple[str, ...]] = {
    "en": (
        "When will it ship?",
        "We can deliver half of it on Monday.",
        "The drawing says 2.5 mm. Which one is right?",
        "Please confirm the price.",
        "Packed and ready; the truck comes at noon.",
    ),
    "pl": (
        "Kiedy wysyłka?",
        "Połowę możemy dostarczyć w poniedziałek.",
        "Na rysunku jest 2,5 mm. Która wartość jest właściwa?",
        "Proszę o potwierdzenie ceny.",
        "Zapakowane i gotowe; ciężarówka będzie w południe.",
    ),
    "ja": (
        "いつ発送されますか。",
        "半分は月曜日に納品できます。",
        "図面では2.5 mmです。どちらが正しいですか。",
        "価格をご確認ください。",
        "梱包済みです。正午にトラックが来ます。",
    ),
}

REASONS: dict[str, tuple[str, ...]] = {
    "en": ("Out of stock", "No longer made", "The price has changed"),
    "pl": ("Brak w magazynie", "Produkcja zakończona", "Cena uległa zmianie"),
    "ja": ("在庫切れ", "製造終了", "価格変更"),
}

NOTES: dict[str, tuple[str, ...]] = {
    "en": ("", "", "Deliver to gate 3", "Call before delivery"),
    "pl": ("", "", "Dostawa do bramy 3", "Proszę zadzwonić przed dostawą"),
    "ja": ("", "", "3番ゲートに納品", "納品前にお電話ください"),
}
